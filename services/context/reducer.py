"""The one reducer: entries and projections to effective history. Pure (law 5).

Live rounds, later turns, restart, rebuilding and audit all call `reduce`; nothing else decides what
the model sees. It is a left fold: reducing a longer transcript begins with the items of a shorter
one, so the cache may go on where it stopped, by giving the calls that were open there. Only an
entry that makes earlier ones be skipped breaks that (`rewrites`).

Transitions and checkpoints, when they come, become arguments of `reduce`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec
from counterfoil.journal.v1.journal_pb2 import Projection
from counterfoil.transcript.v1 import transcript_pb2 as pb

from foundation.digests import digest
from foundation.outcomes import failure_text

PROJECTION_DOMAIN = "counterfoil.projection.v1"

_INPUT = pb.TRANSCRIPT_ENTRY_KIND_INPUT
_ANSWER = pb.TRANSCRIPT_ENTRY_KIND_ANSWER
_RESULTS = pb.TRANSCRIPT_ENTRY_KIND_RESULTS
_SPOKEN = (
    _INPUT,
    pb.TRANSCRIPT_ENTRY_KIND_NOTE,
    pb.TRANSCRIPT_ENTRY_KIND_CONTINUE,
)
_SKIPPING = (pb.TRANSCRIPT_ENTRY_KIND_ABANDONED, pb.TRANSCRIPT_ENTRY_KIND_WITHHELD)


class HistoryCorruptError(Exception):
    """Stored history contradicts itself. The text names the entry and holds no content."""


class OpenCallsError(Exception):
    """History goes on although a tool call has no result (invariant I6)."""


@dataclass(frozen=True, slots=True)
class Use:
    """A tool call of an answer: block index, the provider's id as text and as its exact JSON."""

    block_index: int
    id: str
    raw_id: bytes


@dataclass(frozen=True, slots=True)
class Result:
    """What the model sees of one call: the exact JSON strings of its texts."""

    use: Use
    texts: tuple[bytes, ...]
    is_error: bool


class Item(NamedTuple):
    """One piece of effective history. `blocks` are exact JSON, behind the results if there are
    any."""

    kind: Literal["input", "answer", "results"]
    seq: int
    blocks: tuple[bytes, ...] = ()
    results: tuple[Result, ...] = ()


@dataclass(frozen=True, slots=True)
class Effective:
    """Reduced history, and the calls at its end that have no results yet."""

    items: tuple[Item, ...]
    open: tuple[Use, ...]


class BlockHead(msgspec.Struct):
    """What is looked at in a block; everything else stays bytes."""

    type: str = ""
    id: msgspec.Raw = msgspec.Raw()
    text: msgspec.Raw = msgspec.Raw()


class _Part(msgspec.Struct):
    kind: str
    text: msgspec.Raw = msgspec.Raw()


class _Body(msgspec.Struct):
    v: int
    kind: str
    parts: list[_Part] = []
    is_error: bool = False
    code: str = ""


_BODY = msgspec.json.Decoder(_Body)
_BLOCK = msgspec.json.Decoder(BlockHead)


def block_head(block: bytes) -> BlockHead:
    """Type, id and text of a block. Raises msgspec.DecodeError for what is no object."""
    return _BLOCK.decode(block)


def rewrites(entries: Sequence[pb.Entry]) -> bool:
    """Whether these entries change what entries before them mean: reduce from the start then."""
    skipped = _skipped(entries)
    return bool(skipped) and not skipped <= {entry.id for entry in entries}


def wanted_operations(entries: Iterable[pb.Entry]) -> list[str]:
    """Operations whose projections `reduce` needs for these entries."""
    entries = list(entries)
    skipped = _skipped(entries)
    return [
        reference.operation_id
        for entry in entries
        if entry.id not in skipped
        for reference in entry.content.results
    ]


def reduce(
    entries: Sequence[pb.Entry],
    projections: Mapping[str, Projection],
    open: tuple[Use, ...] = (),
) -> Effective:
    """Effective history of `entries`, which follow a history that ended with the calls `open`.

    Raises HistoryCorruptError, and OpenCallsError when an entry follows a call without result.
    """
    skipped = _skipped(entries)
    items: list[Item] = []
    for entry in entries:
        if entry.kind in _SKIPPING or entry.id in skipped:
            continue
        if not entry.HasField("content"):
            raise HistoryCorruptError(f"transcript entry {entry.seq} has no content")
        if open and entry.kind != _RESULTS:
            raise OpenCallsError(f"transcript entry {entry.seq} follows {len(open)} open calls")
        item, open = _item(entry, projections, open)
        items.append(item)
    return Effective(tuple(items), open)


def _skipped(entries: Iterable[pb.Entry]) -> set[str]:
    return {id for e in entries if e.kind in _SKIPPING for id in e.content.skipped_entry_ids}


def _item(
    entry: pb.Entry, projections: Mapping[str, Projection], open: tuple[Use, ...]
) -> tuple[Item, tuple[Use, ...]]:
    content = entry.content
    if entry.kind in _SPOKEN:
        return Item("input", entry.seq, tuple(content.blocks)), ()
    if entry.kind == _ANSWER:
        blocks = tuple(content.blocks)
        return Item("answer", entry.seq, blocks), _uses(entry.seq, blocks)
    if entry.kind != _RESULTS:
        raise HistoryCorruptError(f"transcript entry {entry.seq} has an unknown kind")
    if [r.block_index for r in content.results] != [use.block_index for use in open]:
        raise HistoryCorruptError(
            f"transcript entry {entry.seq}: the results do not answer the calls before them"
        )
    results = tuple(
        _result(entry.seq, reference, use, projections.get(reference.operation_id))
        for reference, use in zip(content.results, open, strict=True)
    )
    return Item("results", entry.seq, tuple(content.trailing_blocks), results), ()


def _uses(seq: int, blocks: tuple[bytes, ...]) -> tuple[Use, ...]:
    uses: list[Use] = []
    for index, block in enumerate(blocks):
        try:
            head = block_head(block)
            if head.type == "tool_use":
                raw_id = bytes(head.id)
                uses.append(Use(index, msgspec.json.decode(raw_id, type=str), raw_id))
        except msgspec.DecodeError:
            raise HistoryCorruptError(
                f"transcript entry {seq}: block {index} cannot be read"
            ) from None
    return tuple(uses)


def _result(
    seq: int, reference: pb.ResultReference, use: Use, projection: Projection | None
) -> Result:
    id = reference.operation_id
    if projection is None or not projection.body:
        raise HistoryCorruptError(f"transcript entry {seq}: {id} has no projection")
    if digest(PROJECTION_DOMAIN, projection.body) != reference.projection_digest:
        raise HistoryCorruptError(f"transcript entry {seq}: the projection of {id} was changed")
    try:
        body = _BODY.decode(projection.body)
    except msgspec.DecodeError:
        raise HistoryCorruptError(
            f"transcript entry {seq}: the projection of {id} cannot be read"
        ) from None
    if body.v == 1 and body.kind == "failure":
        text = msgspec.json.encode(failure_text(body.code))
        return Result(use, (text,), is_error=True)
    if body.v == 1 and body.kind == "content" and all(p.kind == "text" for p in body.parts):
        return Result(use, tuple(bytes(part.text) for part in body.parts), body.is_error)
    raise HistoryCorruptError(
        f"transcript entry {seq}: the projection of {id} is of an unknown version"
    )
