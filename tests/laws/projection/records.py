"""What every stored record must be, judged from the rows and the transcript alone."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from counterfoil.journal.v1.journal_pb2 import Projection
from counterfoil.transcript.v1 import transcript_pb2 as pb

from foundation import digests
from foundation.projections import collect_refs
from services.context.checkpoints import Checkpoint
from services.context.losses import NO_LOSSES
from services.context.reducer import effective_digest, reduce
from tests.laws.projection import expected
from tests.laws.projection.authorities import Row
from tests.services.context.histories import ANSWER, INPUT, RESULTS

ARCHIVED = ("active_tool_result_archived", "stale_tool_result_archived", "superseded_tool_result")
_SHRINK = 0.81
"""The rule says 0.8 of the whole request; messages are written anew here, and weighed."""
_IMAGE_BYTES = 4_800
"""What an image counts as, instead of its own."""


def check_chains(
    rows: Sequence[Row], entries: Sequence[pb.Entry], projections: Mapping[str, Projection]
) -> None:
    """Each target's transitions are one chain from what it was, and behind all that was covered;
    checkpoints are one chain; versions have no gap (P6, P8, P15, P17)."""
    digest: dict[tuple[int, int], bytes] = {}
    last: dict[tuple[int, int], tuple[int, str]] = {}
    tip: Checkpoint | None = None
    version = 0
    for row in rows:
        assert version <= row.version <= version + 1
        if row.checkpoint is not None:
            assert row.version == version + 1
            _check_successor(row.checkpoint, tip)
            tip = row.checkpoint
        version = row.version
        if (one := row.transition) is None:
            continue
        place = (one.seq, one.part)
        assert one.seq > (tip.through_seq if tip else 0) or one.reason == "redaction"
        before = digest.get(place) or _base(entries[one.seq - 1], one.part, projections)
        assert (one.ordinal, one.predecessor_id) == last.get(place, (1, ""))
        assert one.source_digest == before
        domain = "counterfoil.replacement.v1" if one.part == -1 else "counterfoil.projection.v1"
        assert one.replacement_digest == digests.digest(domain, one.replacement)
        digest[place] = one.replacement_digest
        last[place] = (one.ordinal + 1, one.id)
    ids = [one.id for row in rows if (one := row.transition or row.checkpoint)]
    assert len(set(ids)) == len(ids)


def _base(entry: pb.Entry, part: int, projections: Mapping[str, Projection]) -> bytes:
    if part == -1:
        return digests.digest("counterfoil.input.v1", *entry.content.blocks)
    (id,) = [r.operation_id for r in entry.content.results if r.block_index == part]
    return digests.digest("counterfoil.projection.v1", projections[id].body)


def _check_successor(one: Checkpoint, tip: Checkpoint | None) -> None:
    assert one.previous_id == (tip.id if tip else "")
    covered = tip.through_seq if tip else 0
    assert one.through_seq > covered or one.cause == "profile_switch"
    assert one.through_seq >= covered
    assert len(one.block) <= 64 * 1024


def check_checkpoint(
    one: Checkpoint,
    before: Sequence[Row],
    entries: Sequence[pb.Entry],
    projections: Mapping[str, Projection],
    blobs: Mapping[str, bytes],
) -> None:
    """A new checkpoint covers whole rounds, what was effective there, shows the input of a turn
    that it cuts through, makes the history smaller, and builds on the one before it (P15, P18,
    P19)."""
    last = entries[one.through_seq - 1]
    assert one.through_digest == last.digest
    skipped = expected.skipped_ids(entries)
    behind = [e for e in entries[one.through_seq :] if e.id not in skipped and _is_shown(e)]
    assert last.kind == RESULTS or not behind or behind[0].turn_id != last.turn_id
    tip = next((row.checkpoint for row in reversed(before) if row.checkpoint), None)
    if one.cause != "profile_switch":
        goes_on = not behind or behind[0].turn_id == last.turn_id
        asked = [e.seq for e in entries if e.turn_id == last.turn_id and e.kind == INPUT]
        assert one.anchor_seq == (asked[-1] if goes_on and last.id not in skipped else 0)
    assert one.effective_digest == covered_digest(one, before, entries, projections)
    rolled = json.loads(one.block)["text"]
    if tip is not None and one.format == "extractive" and tip.format == "extractive":
        assert expected.markers(_first_goal(tip)) <= expected.markers(rolled)
    if one.cause in ("window", "overflow") and _are_kept(projections, blobs):
        made = [*before, Row(0, 0, ("", 0), checkpoint=one)]
        was = _weight(expected.messages(entries, projections, before, blobs))
        assert _weight(expected.messages(entries, projections, made, blobs)) <= _SHRINK * was


def _are_kept(projections: Mapping[str, Projection], blobs: Mapping[str, bytes]) -> bool:
    """Whether no image is gone: an estimate takes it as an image until it was asked for."""
    return all(
        id in blobs for one in projections.values() if one.body for id in collect_refs(one.body)
    )


def _is_shown(entry: pb.Entry) -> bool:
    return not entry.content.skipped_entry_ids


def _first_goal(one: Checkpoint) -> str:
    return json.loads(one.block)["text"].partition("## Goals\n- ")[2].partition("\n")[0]


def _weight(messages: Sequence[expected.Json]) -> int:
    written = json.dumps(messages, ensure_ascii=False, separators=(",", ":"))
    images = [found["source"].get("data", "") for found in _images(messages)]
    return len(written.encode()) + sum(_IMAGE_BYTES - len(data) for data in images)


def _images(value: Any) -> Iterator[expected.Json]:
    if isinstance(value, list):
        for one in cast("list[Any]", value):
            yield from _images(one)
    elif isinstance(value, dict):
        found = cast("expected.Json", value)
        if found.get("type") == "image":
            yield found
        else:
            yield from _images(list(found.values()))


def covered_digest(
    one: Checkpoint,
    rows: Sequence[Row],
    entries: Sequence[pb.Entry],
    projections: Mapping[str, Projection],
) -> bytes:
    """The digest of what a checkpoint covers, with the transitions of these rows; rolls on from the
    checkpoint before it, because a turn may be taken out of history behind that."""
    tip = next(
        (r.checkpoint for r in rows if r.checkpoint and r.checkpoint.id == one.previous_id), None
    )
    begin, digest = (tip.through_seq, tip.effective_digest) if tip else (0, b"")
    transitions = [row.transition for row in rows if row.transition is not None]
    losses = NO_LOSSES.with_transitions(transitions, len(transitions))
    skipped = expected.skipped_ids(entries)
    kept = [e for e in entries[: one.through_seq] if e.id not in skipped and _is_shown(e)]
    items = reduce(kept, projections, losses).items
    return effective_digest(digest, [item for item in items if item.seq > begin])


def check_archived(batch: Sequence[Row], entries: Sequence[pb.Entry]) -> None:
    """The model has read what was archived."""
    archived = [row.transition for row in batch if row.transition]
    archived = [one for one in archived if one.reason in ARCHIVED]
    if not archived:
        return
    skipped = expected.skipped_ids(entries)
    answers = [e.seq for e in entries if e.kind == ANSWER and e.id not in skipped]
    assert all(one.seq < max(answers) for one in archived), "the model has not read it"


def check_newest_first(
    batch: Sequence[Row],
    before: Sequence[Row],
    entries: Sequence[pb.Entry],
    projections: Mapping[str, Projection],
) -> None:
    """No large result behind the oldest that was archived could have gone in its place."""
    archived = {(t.seq, t.part) for row in batch if (t := row.transition) and t.reason in ARCHIVED}
    if not archived:
        return
    touched = {(t.seq, t.part) for row in before if (t := row.transition)}
    skipped = expected.skipped_ids(entries)
    shown = [e for e in entries if e.id not in skipped and _is_shown(e)]
    answered = max(e.seq for e in shown if e.kind == ANSWER)
    used: list[str | None] = []
    *_, before_last, _ = [None, *dict.fromkeys(e.turn_id for e in shown)]
    for entry in shown:
        if entry.kind == ANSWER:
            used = [json.loads(block).get("id") for block in entry.content.blocks]
        if entry.kind != RESULTS or entry.turn_id == before_last:
            continue
        for reference in entry.content.results:
            if used.index(used[reference.block_index]) < reference.block_index:
                continue  # of calls with one id, the first is shown, and the others make no room
            place = (entry.seq, reference.block_index)
            body = projections[reference.operation_id].body
            if min(archived) < place and entry.seq < answered and place not in touched:
                assert place in archived or len(body) < 8_000 or b'"artifact"' in body, place
