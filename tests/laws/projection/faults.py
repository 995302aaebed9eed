"""The protocol with one rule removed: histories must find each of these out."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from counterfoil.files.v1 import artifacts_pb2
from counterfoil.journal.v1.journal_pb2 import Projection
from counterfoil.transcript.v1 import transcript_pb2 as pb

from foundation.errors import Failure
from foundation.projections import Artifact, Text
from services.context import (
    cache,
    checkpoints,
    compaction,
    cutting,
    history,
    materializer,
    planning,
    preparing,
    reducer,
    summary,
)
from services.context.checkpoints import RefusedCheckpoint
from services.context.history import History
from services.context.losses import NO_LOSSES, Losses
from services.context.reducer import Effective, Item, Use
from services.context.transitions import Folded, RefusedTransition, Transition
from tests.laws.projection.authorities import Fence, MemoryRecords, Row

Fault = Callable[[], AbstractContextManager[Any]]

_check_transition = planning.check
_check_checkpoint = checkpoints.check
_reduce = history.reduce
_fold = reducer.fold


def _transitions_pass(*reasons: str) -> AbstractContextManager[Any]:
    """Transitions that break these rules are taken for right."""

    def check(*args: Any) -> None:
        try:
            _check_transition(*args)
        except RefusedTransition as refused:
            if refused.reason not in reasons:
                raise

    return patch.object(planning, "check", check)


def _checkpoints_pass(*reasons: str) -> AbstractContextManager[Any]:
    """Checkpoints that break these rules are taken for right."""

    def check(*args: Any) -> None:
        try:
            _check_checkpoint(*args)
        except RefusedCheckpoint as refused:
            if refused.reason not in reasons:
                raise

    return patch.multiple(checkpoints, check=check)


def covered_targets_change() -> AbstractContextManager[Any]:
    return _transitions_pass("TARGET_COVERED")


def sources_are_not_compared() -> AbstractContextManager[Any]:
    return _transitions_pass("STALE_SOURCE")


def replacements_may_grow() -> AbstractContextManager[Any]:
    return _transitions_pass("NOT_SMALLER")


def replacements_are_not_read() -> AbstractContextManager[Any]:
    return _transitions_pass("INVALID")


def coverage_may_shrink() -> AbstractContextManager[Any]:
    return _checkpoints_pass("NO_PROGRESS")


def parents_are_not_compared() -> AbstractContextManager[Any]:
    return _checkpoints_pass("STALE_HEAD")


def summaries_have_no_limit() -> AbstractContextManager[Any]:
    return _checkpoints_pass("LIMIT")


def hardly_smaller_is_enough() -> AbstractContextManager[Any]:
    """A compaction is recorded although the request stays as large."""
    return patch.multiple(checkpoints, SHRINK=100.0)


def versions_are_not_compared() -> AbstractContextManager[Any]:
    """A record is stored although others came in between."""

    def is_newest(self: MemoryRecords, version: int) -> bool:
        return True

    return patch.object(MemoryRecords, "is_newest", is_newest)


def epochs_are_not_compared() -> AbstractContextManager[Any]:
    """A process that lost the thread goes on writing."""

    def admits(self: Fence, epoch: int) -> bool:
        return True

    return patch.object(Fence, "admits", admits)


def half_a_batch_is_stored() -> AbstractContextManager[Any]:
    store = MemoryRecords.store

    def half(self: MemoryRecords, epoch: int, version: int, rows: Sequence[Row]) -> bool:
        return store(self, epoch, version, rows[: (len(rows) + 1) // 2])

    return patch.object(MemoryRecords, "store", half)


def transitions_are_not_shown() -> AbstractContextManager[Any]:
    """The reducer shows what was replaced."""

    def reduce(
        entries: Sequence[pb.Entry],
        projections: Mapping[str, Projection],
        losses: Losses = NO_LOSSES,
        open: tuple[Use, ...] = (),
    ) -> Effective:
        return _reduce(entries, projections, replace(losses, transitions={}), open)

    return patch.object(history, "reduce", reduce)


def later_readers_see_the_base() -> AbstractContextManager[Any]:
    """Only the first transition of a target is ever shown."""
    return patch.object(reducer, "fold", lambda base, chain: _fold(base, chain[:1]))


def broken_chains_show_the_base() -> AbstractContextManager[Any]:
    """A record that cannot be read leaves what was before it."""

    def fold(base: bytes, chain: Sequence[Transition]) -> Folded:
        folded = _fold(base, chain)
        if not folded.is_withheld:
            return folded
        return fold(base, chain[:-1]) if len(chain) > 1 else Folded(_SHORT, base, "", 0)

    return patch.object(reducer, "fold", fold)


_SHORT = b'{"kind":"text","text":"","v":1}'


def open_calls_are_left_out() -> AbstractContextManager[Any]:
    """A request is made although a call has no result."""

    def check_end(warm: Any, head: Any) -> None:
        warm.open = ()

    return patch.object(history, "_check_end", check_end)


def skipped_entries_are_shown() -> AbstractContextManager[Any]:
    """Turns that were taken out of history stay in it."""

    def nothing(entries: Iterable[pb.Entry]) -> set[str]:
        return set()

    return patch.multiple(reducer, skipped_ids=nothing)


def cuts_fall_between_call_and_result() -> AbstractContextManager[Any]:
    return patch.object(cutting, "_is_boundary", lambda items, index: index < len(items))


def the_input_is_not_anchored() -> AbstractContextManager[Any]:
    """A compaction in the middle of a turn takes away what the turn is about."""
    return patch.object(cutting, "_anchors", lambda items: {})


def unread_results_are_archived() -> AbstractContextManager[Any]:
    """Results are archived before the model has read them."""
    candidates = planning._candidates

    def all_read(items: Sequence[Item], losses: Losses) -> Any:
        end = Item("answer", items[-1].seq + 1, turn_id=items[-1].turn_id)
        return candidates([*items, end], losses)

    return patch.object(planning, "_candidates", all_read)


def the_oldest_are_archived_first() -> AbstractContextManager[Any]:
    candidates = planning._candidates

    def turned(items: Sequence[Item], losses: Losses) -> Any:
        return candidates(items, losses)[::-1]

    return patch.object(planning, "_candidates", turned)


def archiving_need_not_make_room() -> AbstractContextManager[Any]:
    """Results are archived although a compaction is due all the same."""
    return patch.multiple(planning, ENOUGH=100.0)


def covered_digests_leave_history_out() -> AbstractContextManager[Any]:
    """A checkpoint does not say which effective history it covers."""
    return patch.object(compaction, "effective_digest", lambda before, items: bytes(32))


def summaries_read_what_was_replaced() -> AbstractContextManager[Any]:
    """Plans and summaries are made from history as it was."""
    items = History.items

    async def raw(self: History, thread: Any, head: Any, losses: Losses) -> list[Item]:
        return await items(self, thread, head, replace(losses, transitions={}))

    return patch.object(History, "items", raw)


def summaries_begin_from_scratch() -> AbstractContextManager[Any]:
    """A rolling summary forgets what the one before it kept."""
    extended = summary.extended

    def forgetful(before: Any, items: Sequence[Item], tool: str) -> Any:
        return extended(summary.Sections(), items, tool)

    return patch.object(summary, "extended", forgetful)


def a_switch_keeps_the_foreign_summary() -> AbstractContextManager[Any]:
    return patch.object(preparing, "is_foreign", lambda losses, runtime: False)


def a_switch_expands_what_is_covered() -> AbstractContextManager[Any]:
    """Another profile begins with raw history again."""
    current = History.current

    async def expanded(
        self: History, thread: Any, head: Any, warm: Any, losses: Losses, known: Any = None
    ) -> Any:
        checkpoint = losses.checkpoint
        if checkpoint is not None and checkpoint.cause == "profile_switch":
            losses = replace(losses, checkpoint=None)
        return await current(self, thread, head, warm, losses, known)

    return patch.object(History, "current", expanded)


@contextmanager
def the_newest_images_are_sent() -> Generator[None]:
    """The budget of images is spent on the newest ones."""
    materialize = materializer.materialize

    def newest(items: Iterable[Item], blobs: Any, image_bytes: int = 0) -> Any:
        items = list(items)
        room, kept = materializer.IMAGE_BYTES_MAX, set[str]()
        for item in reversed(items):
            for result in reversed(item.results):
                for part in result.parts:
                    if isinstance(part, Artifact) and part.size <= room:
                        room -= part.size
                        kept.add(part.id)

        def take(self: Any, part: Text | Artifact) -> Artifact | None:
            if not isinstance(part, Artifact) or not part.media_type.startswith("image/"):
                return None
            return part if part.id in kept else None

        with patch.object(materializer._Images, "take", take):
            return materialize(items, blobs, image_bytes)

    with patch.object(cache, "materialize", newest):
        yield


def images_are_not_counted_on() -> AbstractContextManager[Any]:
    """Every further piece of history has a budget of images of its own."""
    materialize = materializer.materialize
    return patch.object(
        cache, "materialize", lambda items, blobs, used=0: materialize(items, blobs)
    )


def a_silent_store_leaves_images_out() -> AbstractContextManager[Any]:
    """A request is made without the images that could not be read just then."""

    async def blobs(self: Any, thread: Any, artifact_ids: Sequence[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for id in artifact_ids:
            try:
                request = artifacts_pb2.ReadArtifactRequest(artifact_id=id)
                found[id] = (await self._artifacts.ReadArtifact(request)).body
            except Failure:
                continue
        return found

    return patch.object(History, "_blobs", blobs)


def repeated_ids_are_sent() -> AbstractContextManager[Any]:
    """Calls and results come twice under one id."""
    return patch.object(materializer, "shown_results", lambda item: list(item.results))


def results_stand_in_the_order_of_the_journal() -> AbstractContextManager[Any]:
    """What finished first is shown first."""
    item = reducer._item

    def shuffled(entry: pb.Entry, projections: Mapping[str, Projection], *rest: Any) -> Any:
        made, open = item(entry, projections, *rest)
        order = list(projections)
        results = sorted(made.results, key=lambda one: order.index(one.operation_id))
        return made._replace(results=tuple(results)), open

    return patch.object(reducer, "_item", shuffled)


def warm_history_outlives_its_records() -> AbstractContextManager[Any]:
    """A process goes on with the history that it had, whatever was recorded."""
    current = History.current

    async def kept(
        self: History, thread: Any, head: Any, warm: Any, losses: Losses, known: Any = None
    ) -> Any:
        old = self.__dict__.get("_old")
        made = await current(self, thread, head, warm or old, losses, known)
        made.losses, self.__dict__["_old"] = losses, made
        return made

    return patch.object(History, "current", kept)


FAULTS: Mapping[Fault, str] = {
    covered_targets_change: "everything",
    sources_are_not_compared: "everything",
    replacements_may_grow: "everything",
    replacements_are_not_read: "everything",
    coverage_may_shrink: "everything",
    parents_are_not_compared: "everything",
    summaries_have_no_limit: "everything",
    hardly_smaller_is_enough: "everything",
    versions_are_not_compared: "everything",
    epochs_are_not_compared: "everything",
    half_a_batch_is_stored: "large",
    transitions_are_not_shown: "everything",
    later_readers_see_the_base: "everything",
    broken_chains_show_the_base: "everything",
    open_calls_are_left_out: "everything",
    skipped_entries_are_shown: "everything",
    cuts_fall_between_call_and_result: "everything",
    the_input_is_not_anchored: "everything",
    unread_results_are_archived: "large",
    the_oldest_are_archived_first: "large",
    archiving_need_not_make_room: "large",
    covered_digests_leave_history_out: "everything",
    summaries_read_what_was_replaced: "large",
    summaries_begin_from_scratch: "everything",
    a_switch_keeps_the_foreign_summary: "everything",
    a_switch_expands_what_is_covered: "everything",
    the_newest_images_are_sent: "images",
    images_are_not_counted_on: "images",
    a_silent_store_leaves_images_out: "images",
    repeated_ids_are_sent: "everything",
    results_stand_in_the_order_of_the_journal: "everything",
    warm_history_outlives_its_records: "everything",
}
"""Every fault, and what the histories are about that should find it out."""
