"""Takes over what another thread's history has lost, for a thread that begins with a copy of it.

Transitions are of what they replace, not of a time: those of everything up to the cut are copied,
whenever they were recorded. A checkpoint that goes beyond the cut is not: what it covers is shown
as its transitions left it, so nothing that was replaced comes back. Nothing is recorded before the
histories of both threads were made and compared.
"""

import hashlib
from collections.abc import Sequence

import msgspec
from counterfoil.context.v1 import context_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1.reference_pb2 import Head, ThreadRef

from foundation import ids
from foundation.errors import Failure, not_found
from services.context import checkpoints, transitions
from services.context.checkpoints import Checkpoint
from services.context.history import History
from services.context.losses import NO_LOSSES, Losses
from services.context.recipe import ThreadKey, thread_key
from services.context.records import Records
from services.context.snapshots import Snapshots
from services.context.transitions import UNREADABLE, Target, Transition


class Copier:
    """Copies losses between threads."""

    def __init__(self, history: History, records: Records, snapshots: Snapshots) -> None:
        self._history = history
        self._records = records
        self._snapshots = snapshots

    async def copy(self, request: pb.CopyThreadRequest) -> None:
        """Copy once; raises what the contract says."""
        thread, epoch = request.fence.thread, request.fence.epoch
        key, source = thread_key(thread), thread_key(request.source)
        if key[0] != source[0]:
            raise not_found("thread", source[2])
        seen = await self._snapshots.admit(key, epoch)
        if (await self._records.newest(key)).version > 0:
            if seen == 0:  # only a redaction records without a claim
                raise Failure(
                    reasons.ERROR_REASON_CORRUPT,
                    f"thread {key[2]} was redacted before its history was copied: fork again",
                )
            return  # copied before
        moved, covered = await self._records.through(source, request.source_head.seq)
        copied = copied_transitions(key, moved)
        digests = {
            one.through_seq: await self._history.digest_at(thread, one.through_seq)
            for one in covered
        }
        summaries = copied_checkpoints(key, covered, digests)
        was = await self._digest(request.source, request.source_head, _losses(moved, covered))
        is_now = await self._digest(thread, request.head, _losses(copied, summaries))
        if was != is_now:
            raise Failure(
                reasons.ERROR_REASON_CORRUPT,
                f"the copied history differs from that of thread {source[2]} at entry "
                f"{request.source_head.seq}",
            )
        if not await self._records.copy(key, epoch, copied, summaries):
            await self._snapshots.admit(key, epoch)

    async def _digest(self, thread: ThreadRef, head: Head, losses: Losses) -> bytes:
        """Of the messages of a thread as they are at `head`, with these losses."""
        history = await self._history.past(thread, head, losses)
        return hashlib.sha256(history.messages().joined).digest()


def copied_transitions(key: ThreadKey, moved: Sequence[Transition]) -> list[Transition]:
    """The same replacements in another thread: ids and predecessors are its own. What could not be
    read withholds its target there, too."""
    found: list[Transition] = []
    last: dict[Target, str] = {}
    for one in moved:
        if one.reason == UNREADABLE:
            id = ids.copied("transition", key[2], one.id)
            copy = msgspec.structs.replace(one, id=id)
        else:
            linked = msgspec.structs.replace(one, predecessor_id=last.get(one.target, ""))
            copy = transitions.identified(key, linked)
        last[one.target] = copy.id
        found.append(copy)
    return found


def copied_checkpoints(
    key: ThreadKey, covered: Sequence[Checkpoint], digests: dict[int, bytes]
) -> list[Checkpoint]:
    """The same summaries in another thread; `digests` are those of its transcript by sequence."""
    found: list[Checkpoint] = []
    for one in covered:
        copy = msgspec.structs.replace(
            one,
            through_digest=digests[one.through_seq],
            previous_id=found[-1].id if found else "",
            operation_id="",
        )
        found.append(checkpoints.identified(key, copy))
    return found


def _losses(moved: Sequence[Transition], covered: Sequence[Checkpoint]) -> Losses:
    losses = NO_LOSSES.with_transitions(moved, 1)
    for one in covered:
        losses = losses.with_checkpoint(one, 1)
    return losses
