"""Recomputes what a thread's losses and snapshots say, from the authorities' own records, and names
what does not hold."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from counterfoil.context.v1 import context_pb2 as pb
from counterfoil.types.v1.reference_pb2 import Head, ThreadRef

from foundation.errors import Failure
from foundation.storage import Database, SealRing
from services.context import checkpoints, loss_store, recipe, store, transitions
from services.context.cache import Warm
from services.context.checkpoints import Checkpoint
from services.context.history import History
from services.context.losses import NO_LOSSES, Losses
from services.context.recipe import Recipe, Row, ThreadKey, thread_key
from services.context.records import Records, open_checkpoint, open_transition
from services.context.redacting import Redactor
from services.context.reducer import effective_digest
from services.context.snapshots import Snapshots
from services.context.transitions import UNREADABLE, Transition


class Recorded(Protocol):
    """What is recorded of threads, wherever: rows have the columns of the tables, sealed."""

    async def transitions(self, key: ThreadKey) -> Sequence[Row]:
        """The thread's transitions, in order."""
        ...

    async def checkpoints(self, key: ThreadKey) -> Sequence[Row]:
        """The thread's checkpoints, in order, with `is_revoked`, and the `transition_id` that did
        it."""
        ...

    async def snapshots(self, key: ThreadKey) -> Sequence[Row]:
        """The thread's snapshots, oldest first."""
        ...

    async def losses(self, key: ThreadKey, version: int) -> Losses:
        """What the thread had lost at a version. Raises CORRUPT."""
        ...

    async def redacted(self, key: ThreadKey, version: int, seq_max: int) -> bool:
        """Whether something through an entry was redacted behind a version."""
        ...

    async def built(self, key: ThreadKey, id: str, stored: Recipe, warm: Warm) -> bytes:
        """The bytes of a stored recipe. Raises CORRUPT."""
        ...


class Stored:
    """What the database has."""

    def __init__(
        self, db: Database, records: Records, snapshots: Snapshots, redactor: Redactor
    ) -> None:
        self._db = db
        self.losses = records.at
        self.built = snapshots.built
        self.redacted = redactor.since

    async def transitions(self, key: ThreadKey) -> Sequence[Row]:
        """See `Recorded`."""
        return await loss_store.all_transitions(self._db, key)

    async def checkpoints(self, key: ThreadKey) -> Sequence[Row]:
        """See `Recorded`."""
        return await loss_store.all_checkpoints(self._db, key)

    async def snapshots(self, key: ThreadKey) -> Sequence[Row]:
        """See `Recorded`."""
        return await store.snapshots(self._db, key)


class Verifier:
    """Verifies one thread at a time; writes nothing."""

    def __init__(self, ring: SealRing, history: History, recorded: Recorded) -> None:
        self._ring = ring
        self._history = history
        self._recorded = recorded

    async def verify(self, thread: ThreadRef, *, requests: bool) -> pb.VerifyContextResponse:
        """Everything; with `requests` each snapshot's request is built again, too."""
        key = thread_key(thread)
        response = pb.VerifyContextResponse()
        moved = await self._transitions(key, response)
        covered = await self._checkpoints(thread, key, moved, response)
        response.transitions, response.checkpoints = moved.count, covered
        if moved.count:
            response.transition_head.CopyFrom(Head(seq=moved.count, digest=moved.digest))
        rows = await self._recorded.snapshots(key)
        response.snapshots = len(rows)
        if requests:
            warm: Warm | None = None
            for row in rows:
                warm = await self._request(thread, key, row, warm, response)
        return response

    async def _transitions(self, key: ThreadKey, response: pb.VerifyContextResponse) -> Losses:
        losses = NO_LOSSES
        rows = await self._recorded.transitions(key)
        opened = [open_transition(self._ring, key, row) for row in rows]
        redacted = {one.target for one in opened if transitions.is_redacted([one])}
        for row, one in zip(rows, opened, strict=True):
            where = f"transition {row['hw']}"
            losses = losses.with_transitions([one], losses.version + 1)
            if row["hw"] != losses.count:
                _found(response, where, "is out of order: one before it is missing")
                losses = replace(losses, count=row["hw"], digest=row["chain_digest"])
            elif row["chain_digest"] != losses.digest:
                _found(response, where, "does not match the chain of transitions")
            if row["sealed"] is None and one.target in redacted:
                message = "has lost its content: it was redacted"
                _found(response, where, message, informational=True)
                continue
            _check_transition(key, row, one, where, response)
        for target, chain in losses.transitions.items():
            withheld = transitions.fold(chain[0].source_digest, chain).is_withheld
            if withheld and all(one.reason != UNREADABLE for one in chain):
                _found(response, f"entry {target.seq}", "has transitions that do not continue")
        return losses

    async def _checkpoints(
        self,
        thread: ThreadRef,
        key: ThreadKey,
        moved: Losses,
        response: pb.VerifyContextResponse,
    ) -> int:
        before: Checkpoint | None = None
        last_id, count = "", 0
        for row in await self._recorded.checkpoints(key):
            count += 1
            where = f"checkpoint {row['ordinal']}"
            if row["ordinal"] != count:
                _found(response, where, "is out of order: one before it is missing")
                count = row["ordinal"]
            if row["is_revoked"]:
                _check_revoked(row, moved, where, response)
                last_id = row["id"]
                continue
            try:
                made = open_checkpoint(self._ring, key, row)
            except Failure:
                _found(response, where, "cannot be read")
                last_id = row["id"]
                continue
            if checkpoints.identified(key, made).id != row["id"] or made.previous_id != last_id:
                _found(response, where, "is not the one that was recorded there")
            await self._coverage(thread, moved, before, made, where, response)
            before, last_id = made, row["id"]
        return count

    async def _coverage(
        self,
        thread: ThreadRef,
        moved: Losses,
        before: Checkpoint | None,
        made: Checkpoint,
        where: str,
        response: pb.VerifyContextResponse,
    ) -> None:
        """Whether it covers what the transcript, the journal and the transitions make of it."""
        head = Head(seq=made.through_seq, digest=made.through_digest)
        covered = before.through_seq if before else 0
        digest = before.effective_digest if before else b""
        try:
            if made.through_seq > covered:
                losses = replace(moved, checkpoint=before)
                items = await self._history.items(thread, head, losses, through_only=True)
                digest = effective_digest(digest, [one for one in items if one.seq > covered])
            elif await self._history.digest_at(thread, made.through_seq) != made.through_digest:
                digest = b""
        except Failure as failure:
            _found(response, where, f"covers what does not hold: {failure.message}")
            return
        if digest != made.effective_digest:
            _found(response, where, "covers another history than the one that is recorded")

    async def _request(
        self,
        thread: ThreadRef,
        key: ThreadKey,
        row: Row,
        warm: Warm | None,
        response: pb.VerifyContextResponse,
    ) -> Warm | None:
        """Build a request again; history as it was for it, from which the next one goes on where
        nothing was lost between them."""
        where = f"snapshot {row['id']}"
        try:
            made = recipe.open_row(self._ring, key, row)
            if await self._recorded.redacted(key, made.losses_version, made.head_seq):
                message = "cannot be built again: something that it held was redacted"
                _found(response, where, message, informational=True)
                return None
            if warm is None or warm.losses.version != made.losses_version:
                losses = await self._recorded.losses(key, made.losses_version)
                warm = Warm(losses=losses)
            head = Head(seq=made.head_seq, digest=made.head_digest)
            warm = await self._history.past(thread, head, warm.losses, warm)
            await self._recorded.built(key, row["id"], made, warm)
            return warm
        except Failure as failure:
            _found(response, where, failure.message.removeprefix(f"{where} "))
            return None


def _check_revoked(row: Row, moved: Losses, where: str, response: pb.VerifyContextResponse) -> None:
    """Only a redaction of something that it covers revokes a checkpoint."""
    by = next(
        (
            one
            for chain in moved.transitions.values()
            for one in chain
            if one.id == row["transition_id"]
        ),
        None,
    )
    if by is None or by.reason != "redaction" or by.seq > row["through_seq"]:
        _found(response, where, "was revoked, but nothing that it covers was redacted")
    else:
        message = "was revoked: what it covered was redacted"
        _found(response, where, message, informational=True)


def _check_transition(
    key: ThreadKey,
    row: Row,
    one: Transition,
    where: str,
    response: pb.VerifyContextResponse,
) -> None:
    if one.reason == UNREADABLE:
        _found(response, where, "cannot be read; its target is withheld")
    elif transitions.identified(key, one).id != row["id"]:
        _found(response, where, "is not the one that was recorded there")


def _found(
    response: pb.VerifyContextResponse, where: str, what: str, *, informational: bool = False
) -> None:
    response.findings.add(message=f"{where} {what}", informational=informational)
