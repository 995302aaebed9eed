"""The local driver: holds one `ledger.Attach` stream, and advances every turn that comes over it.

A runner that lost its stream, or that was not answered for a lease's time by its own monotonic
clock, starts nothing new until it is attached again; what it holds goes on, because every write is
fenced.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import structlog
from counterfoil.context.v1 import context_pb2
from counterfoil.files.v1 import artifacts_pb2
from counterfoil.journal.v1 import journal_pb2
from counterfoil.ledger.v1 import turn_pb2
from counterfoil.transcript.v1 import transcript_pb2
from counterfoil.types.v1 import reference_pb2

from foundation import ids, telemetry
from foundation.errors import Failure
from services.runner.adapter import MessagesAdapter
from services.runner.advance import advance
from services.runner.attachment import Attachment
from services.runner.authorities import Authorities, Corrupt, GiveUp, Stopped, Unanswered, answered
from services.runner.followed import Followed
from services.runner.retrying import DEFAULT_POLICY, RetryPolicy
from services.runner.turn import Turn

_REATTACH_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)

_log = structlog.get_logger("counterfoil.runner")


@dataclass
class _Held:
    """A claim that is being advanced."""

    turn: Turn
    task: "asyncio.Task[None]"

    @property
    def claim(self) -> turn_pb2.HeldClaim:
        return turn_pb2.HeldClaim(thread=self.turn.thread, epoch=self.turn.claim.epoch)


class Driver:
    """One runner."""

    def __init__(
        self,
        authorities: Authorities,
        adapter: MessagesAdapter,
        *,
        capacity: int = 64,
        policy: RetryPolicy = DEFAULT_POLICY,
    ) -> None:
        self._to = authorities
        self._adapter = adapter
        self._policy = policy
        self._name = ids.new("runner")
        self._held: dict[str, _Held] = {}
        self._erasing: dict[str, asyncio.Task[None]] = {}
        self._followed = Followed()
        self._attachment = Attachment(authorities.turns, self._name, capacity)
        self._draining = False

    @property
    def held(self) -> int:
        """Turns that are being advanced."""
        return len(self._held)

    async def run(self) -> None:
        """Attaches, and attaches again, until it is cancelled."""
        try:
            await self._attach_for_ever()
        finally:
            await self._give_back()

    async def _attach_for_ever(self) -> None:
        failures = 0
        while True:
            started = time.monotonic()
            try:
                held = [held.claim for held in self._held.values()]
                await self._attachment.hold(held, self._on, self._give_back)
            except Failure as failure:
                _log.warning("runner lost its stream", runner=self._name, why=failure.text)
            self._followed.forget()
            failures = 0 if time.monotonic() - started > 1 else failures + 1
            await asyncio.sleep(_REATTACH_SECONDS[min(failures, len(_REATTACH_SECONDS) - 1)])

    def _on(self, response: turn_pb2.AttachResponse) -> None:
        match response.WhichOneof("message"):
            case "attached":
                self._keep_only(response.attached)
            case "claim":
                self._take(response.claim)
            case "interrupt":
                self._with(response.interrupt.claim, lambda held: held.turn.interrupt.set())
            case "fenced":
                self._with(response.fenced, lambda held: held.task.cancel())
            case "erasure":
                self._erase(response.erasure.thread)
            case _:
                pass

    def _keep_only(self, attached: turn_pb2.Attached) -> None:
        """Stops work on claims that did not survive the lost stream."""
        kept = {(claim.thread.thread_id, claim.epoch) for claim in attached.kept}
        for held in tuple(self._held.values()):
            if (held.turn.thread.thread_id, held.turn.claim.epoch) not in kept:
                held.task.cancel()

    def _with(self, claim: turn_pb2.HeldClaim, act: Callable[[_Held], object]) -> None:
        held = self._held.get(claim.thread.thread_id)
        if held is not None and held.turn.claim.epoch == claim.epoch:
            act(held)

    def _take(self, claim: turn_pb2.Claim) -> None:
        thread_id = claim.thread.thread_id
        older = self._held.get(thread_id)
        if older is not None:
            older.task.cancel()
        turn = Turn.of(claim, self._attachment.attached)
        turn.may_end_late = not self._followed.covers(claim)
        if self._draining:
            self._release(turn, turn_pb2.RELEASE_REASON_DRAINING, "shutting down")
            return
        task = self._spawn(self._advance(turn), f"turn {claim.turn_id}")
        self._held[thread_id] = _Held(turn, task)

    async def _advance(self, turn: Turn) -> None:
        """Advances one claim, in the trace of the call that made it claimable."""
        about = {"session_id": turn.thread.session_id, "turn_id": turn.id}
        attributes = {
            "gen_ai.conversation.id": turn.thread.session_id,
            "counterfoil.turn_id": turn.id,
            "counterfoil.epoch": turn.claim.epoch,
            "counterfoil.takeover": turn.claim.takeover,
        }
        parent = telemetry.extract({telemetry.TRACEPARENT: turn.claim.traceparent})
        with (
            structlog.contextvars.bound_contextvars(**about),
            telemetry.span("turn", telemetry.SpanKind.CONSUMER, attributes, parent=parent),
        ):
            await self._try_to_advance(turn)

    async def _try_to_advance(self, turn: Turn) -> None:
        try:
            await advance(self._to, self._adapter, turn, self._policy)
            self._followed.ended(turn.claim, may_end_late=turn.may_end_late)
        except Stopped as why:
            # The ledger compares: in the usual case it has given the thread to somebody else, and
            # the release is void; after a restored backup it learns the epoch that it lost.
            _log.info("claim is gone", epoch=turn.claim.epoch)
            fenced = turn_pb2.RELEASE_REASON_FENCED
            self._release(turn, fenced, str(why), epoch_seen=why.epoch_seen)
        except Unanswered as why:
            self._release(turn, turn_pb2.RELEASE_REASON_UNAVAILABLE, str(why))
        except Corrupt as why:
            _log.error("stored data contradicts itself", why=str(why))
            self._release(turn, turn_pb2.RELEASE_REASON_CORRUPT, str(why))
        except GiveUp as why:
            self._release(turn, turn_pb2.RELEASE_REASON_FAILED, str(why))
        except asyncio.CancelledError:
            if self._draining:
                self._release(turn, turn_pb2.RELEASE_REASON_DRAINING, "shutting down")
            raise
        except Exception as error:
            _log.error("turn failed", exc_info=error)
            self._release(turn, turn_pb2.RELEASE_REASON_FAILED, type(error).__name__)
        finally:
            held = self._held.get(turn.thread.thread_id)
            if held is not None and held.turn is turn:
                del self._held[turn.thread.thread_id]

    def _release(
        self,
        turn: Turn,
        reason: "turn_pb2.ReleaseReason.ValueType",
        detail: str,
        *,
        epoch_seen: int = 0,
    ) -> None:
        claim = turn_pb2.HeldClaim(thread=turn.thread, epoch=turn.claim.epoch)
        release = turn_pb2.AttachRelease(
            claim=claim, reason=reason, detail=detail[:1024], epoch_seen=epoch_seen
        )
        self._attachment.release(release)

    def _erase(self, thread: reference_pb2.ThreadRef) -> None:
        if thread.thread_id not in self._erasing:
            task = self._spawn(self._erase_everywhere(thread), f"erase {thread.thread_id}")
            self._erasing[thread.thread_id] = task

    async def _erase_everywhere(self, thread: reference_pb2.ThreadRef) -> None:
        """The deletion saga: idempotent steps, offered by the ledger until they are done."""
        try:
            await answered(
                self._to.transcript.Tombstone, transcript_pb2.TombstoneRequest(thread=thread)
            )
            await answered(self._to.journal.Tombstone, journal_pb2.TombstoneRequest(thread=thread))
            await answered(self._to.context.Tombstone, context_pb2.TombstoneRequest(thread=thread))
            owner = artifacts_pb2.TombstoneRequest(
                workspace_id=thread.workspace_id, session_id=thread.session_id
            )
            await answered(self._to.artifacts.Tombstone, owner)
            await answered(
                self._to.turns.FinishDeletion, turn_pb2.FinishDeletionRequest(thread=thread)
            )
        except (GiveUp, Failure) as why:
            _log.warning("erasure will be offered again", thread=thread.thread_id, why=str(why))
        finally:
            del self._erasing[thread.thread_id]

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        return asyncio.create_task(work, name=name)

    async def _give_back(self) -> None:
        """Gives every lease back, so that another runner takes over at once."""
        self._draining = True
        tasks = [held.task for held in self._held.values()] + list(self._erasing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
