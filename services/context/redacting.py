"""Redaction: takes something out of a thread's history for good, in one commit.

Nobody's claim is needed: whoever works on the thread meanwhile finds that its records moved on, and
reads again. Afterwards no request shows what was redacted, no summary holds it, and an old request
that may have held it cannot be built again.
"""

from collections.abc import Sequence

from counterfoil.context.v1 import context_pb2 as pb

from foundation import ids
from foundation.errors import deleted, invalid, not_found, wrong_state
from foundation.rpc.context import current
from foundation.storage import Connection, Database, SealRing
from services.context import redaction_store, store
from services.context.history import History
from services.context.loss_store import NewTransition
from services.context.losses import NO_LOSSES, Losses
from services.context.recipe import ThreadKey, thread_key
from services.context.records import new_transition, open_transition
from services.context.targets import Found, Search
from services.context.transitions import (
    ANSWER_PART,
    Current,
    Transition,
    check,
    fold,
    transition,
)

Chains = dict[tuple[int, int], list[Transition]]


class Redactor:
    """Redacts in the threads of one database."""

    def __init__(self, db: Database, ring: SealRing, history: History) -> None:
        self._db = db
        self._ring = ring
        self._history = history

    async def redact(self, request: pb.RedactRequest) -> pb.RedactResponse:
        """Record what is not recorded yet; raises what the contract says."""
        key = thread_key(request.thread)
        found = await self._found(request)
        async with self._db.commit("context.redact") as c:
            fence = await redaction_store.lock(c, key)
            if fence["epoch_max"] == store.EPOCH_INFINITE:
                raise deleted(key[2])
            chains = await self._chains(c, key, found)
            made = [_redaction(key, one, chains) for one in found]
            new = [one for one in made if one is not None]
            rows = await self._rows(c, key, new)
            revoked = 0
            if rows:
                revoked = await redaction_store.record(c, key, fence["epoch_max"], rows)
            ids_ = [
                _redacted_by(chains, at) if one is None else one.id
                for at, one in zip(found, made, strict=True)
            ]
            request_id = current().request_id
            who = (request.reader, request.reason)
            await redaction_store.note(c, ids.new("access"), key, request_id, ids_[0], *who)
        return pb.RedactResponse(
            revoked_checkpoints=revoked,
            targets=[
                pb.RedactedTarget(
                    seq=at.target.seq,
                    operation_id=at.operation_id,
                    transition_id=id,
                    created=one is not None,
                    is_answer=at.target.part == ANSWER_PART,
                    call_operation_ids=at.call_operation_ids,
                )
                for at, one, id in zip(found, made, ids_, strict=True)
            ],
        )

    async def since(self, key: ThreadKey, version: int, seq_max: int) -> bool:
        """Whether something through an entry was redacted behind a version of the losses."""
        rows = await redaction_store.later(self._db, key, version, seq_max)
        return any(open_transition(self._ring, key, row).reason == "redaction" for row in rows)

    async def _found(self, request: pb.RedactRequest) -> list[Found]:
        id = request.operation_id
        refs = await self._history.artifacts_of(request.thread, id) if id else ()
        search = Search(id, request.entry_seq, refs)
        async for entry in self._history.entries(request.thread):
            search.add(entry)
        if search.is_other_kind:
            raise invalid("entry_seq", f"entry {request.entry_seq} is no input or answer")
        found = search.found
        if not found:
            where = "in the history of the thread"
            if id:
                raise not_found("operation", f"{id} with a result {where}")
            raise not_found("entry", f"{request.entry_seq} {where}")
        return found

    async def _chains(self, c: Connection, key: ThreadKey, found: Sequence[Found]) -> Chains:
        chains: Chains = {}
        for row in await redaction_store.chains(c, key, [one.target.seq for one in found]):
            where = (row["target_seq"], row["part"])
            chains.setdefault(where, []).append(open_transition(self._ring, key, row))
        return chains

    async def _rows(
        self, c: Connection, key: ThreadKey, new: Sequence[Transition]
    ) -> list[NewTransition]:
        head = await redaction_store.head(c, key)
        losses = NO_LOSSES
        if head is not None:
            losses = Losses(count=head["hw"], digest=head["chain_digest"])
        rows: list[NewTransition] = []
        for one in new:
            losses = losses.with_transitions([one], losses.version)
            rows.append(new_transition(self._ring, key, losses, one))
        return rows


def _redaction(key: ThreadKey, found: Found, chains: Chains) -> Transition | None:
    """What takes a target out; None when it is out already."""
    folded = fold(found.base_digest, chains.get(found.target, []))
    if folded.is_redacted:
        return None
    if not found.replacement:
        message = f"entry {found.target.seq} is being copied from another session: try again"
        raise wrong_state(message)
    made = transition(key, found.target, folded, found.replacement, "redaction")
    check(made, Current(folded, b"", 0), found.target.seq, 0)
    return made


def _redacted_by(chains: Chains, found: Found) -> str:
    return next(one.id for one in chains[found.target] if one.reason == "redaction")
