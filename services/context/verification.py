"""Recomputes what a thread's losses and snapshots say, from the authorities' own records, and names
what does not hold."""

from dataclasses import replace

from counterfoil.context.v1 import context_pb2 as pb
from counterfoil.types.v1.reference_pb2 import Head, ThreadRef

from foundation.errors import Failure
from foundation.storage import Database, Record, SealRing
from services.context import checkpoints, loss_store, recipe, store, transitions
from services.context.checkpoints import Checkpoint
from services.context.history import History
from services.context.losses import NO_LOSSES, Losses
from services.context.preparing import Preparer
from services.context.recipe import ThreadKey, thread_key
from services.context.records import Records, open_transition
from services.context.redacting import Redactor
from services.context.reducer import effective_digest
from services.context.transitions import UNREADABLE, Transition


class Verifier:
    """Verifies one thread at a time; writes nothing."""

    def __init__(
        self,
        db: Database,
        ring: SealRing,
        history: History,
        records: Records,
        preparer: Preparer,
        redactor: Redactor,
    ) -> None:
        self._db = db
        self._ring = ring
        self._history = history
        self._records = records
        self._preparer = preparer
        self._redactor = redactor

    async def verify(self, thread: ThreadRef, *, requests: bool) -> pb.VerifyContextResponse:
        """Everything; with `requests` each snapshot's request is built again, too."""
        key = thread_key(thread)
        response = pb.VerifyContextResponse()
        moved = await self._transitions(key, response)
        covered = await self._checkpoints(thread, key, moved, response)
        response.transitions, response.checkpoints = moved.count, covered
        if moved.count:
            response.transition_head.CopyFrom(Head(seq=moved.count, digest=moved.digest))
        rows = await store.snapshots(self._db, key)
        response.snapshots = len(rows)
        if requests:
            for row in rows:
                await self._request(thread, key, row, response)
        return response

    async def _transitions(self, key: ThreadKey, response: pb.VerifyContextResponse) -> Losses:
        losses = NO_LOSSES
        rows = await loss_store.all_transitions(self._db, key)
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
        for row in await loss_store.all_checkpoints(self._db, key):
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
                made = self._records.checkpoint(key, row)
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
        self, thread: ThreadRef, key: ThreadKey, row: Record, response: pb.VerifyContextResponse
    ) -> None:
        where = f"snapshot {row['id']}"
        try:
            opened = recipe.open_row(self._ring, key, row)
            if await self._redactor.since(key, opened.losses_version, opened.head_seq):
                message = "cannot be built again: something that it held was redacted"
                _found(response, where, message, informational=True)
                return
            await self._preparer.rebuilt(thread, key, row["id"], opened)
        except Failure as failure:
            _found(response, where, failure.message)


def _check_revoked(
    row: Record, moved: Losses, where: str, response: pb.VerifyContextResponse
) -> None:
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
    row: Record,
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
