"""The one reducer: entries, projections, transitions and a checkpoint to effective history. Pure
(law 5).

Live rounds, later turns, restart, budgeting, summaries, forks, rebuilding and audit all call
`reduce`; nothing else decides what the model sees. It is a left fold: reducing a longer transcript
begins with the items of a shorter one, so the cache may go on where it stopped, by giving the calls
that were open there. Only an entry that makes earlier ones be skipped breaks that (`rewrites`), and
a new transition or checkpoint, which its `Losses` tell.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec
from counterfoil.journal.v1.journal_pb2 import Projection
from counterfoil.transcript.v1 import transcript_pb2 as pb

from foundation import projections as reading
from foundation.digests import digest
from foundation.outcomes import REDACTED_INPUT_TEXT
from foundation.projections import Artifact, Text
from services.context import answers
from services.context.losses import NO_LOSSES, Losses, Target
from services.context.transitions import (
    ANSWER_PART,
    INPUT_PART,
    WITHHELD,
    Folded,
    Transition,
    answer_blocks,
    fold,
    is_redacted,
    omitted_blocks,
)

INPUT_DOMAIN = "counterfoil.input.v1"
"""Domain of the digest of an input's blocks, which a transition of them names as its source."""

OMITTED_BLOCK = b'{"type":"text","text":"(something was left out here to make the request fit)"}'
"""What stands for a block of an input that was left out."""

WITHHELD_BLOCK = b'{"type":"text","text":"(this message cannot be shown)"}'
"""What stands for an input whose record of changes cannot be read."""

REDACTED_BLOCK = msgspec.json.encode({"type": "text", "text": REDACTED_INPUT_TEXT})
"""What stands for an input that was redacted."""

_INPUT = pb.TRANSCRIPT_ENTRY_KIND_INPUT
_ANSWER = pb.TRANSCRIPT_ENTRY_KIND_ANSWER
_RESULTS = pb.TRANSCRIPT_ENTRY_KIND_RESULTS
SPOKEN = (
    _INPUT,
    pb.TRANSCRIPT_ENTRY_KIND_NOTE,
    pb.TRANSCRIPT_ENTRY_KIND_CONTINUE,
)
"""Kinds of entries that are shown as the user's words."""

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


class Result(NamedTuple):
    """What the model sees of one call."""

    use: Use
    parts: tuple[Text | Artifact, ...]
    is_error: bool
    operation_id: str = ""
    digest: bytes = b""
    """Of its effective projection, 32 bytes."""
    ordinal: int = 0
    """How many transitions it has had."""


class Item(NamedTuple):
    """One piece of effective history. `blocks` are exact JSON, behind the results if there are
    any."""

    kind: Literal["input", "answer", "results", "summary"]
    seq: int
    blocks: tuple[bytes, ...] = ()
    results: tuple[Result, ...] = ()
    turn_id: str = ""
    measured_tokens: int = 0
    """With an answer: what the provider said that request and answer take; 0 for unknown."""
    snapshot_id: str = ""
    """With an answer: the request that it answers."""
    ordinal: int = 0
    """With an input or an answer: how many transitions it has had."""
    entry_digest: bytes = b""
    """Chain digest of the transcript at its entry."""


@dataclass(frozen=True, slots=True)
class Effective:
    """Reduced history, and the calls at its end that have no results yet."""

    items: tuple[Item, ...]
    open: tuple[Use, ...]


_ITEM_DOMAIN = "counterfoil.item.v1"
_EFFECTIVE_DOMAIN = "counterfoil.effective.v1"


def item_digest(item: Item) -> bytes:
    """What an item shows, whatever session it is in; 32 bytes."""
    results = [
        digest(
            _ITEM_DOMAIN,
            one.use.raw_id,
            b"%d" % one.use.block_index,
            one.digest,
            b"%d" % one.is_error,
        )
        for one in item.results
    ]
    return digest(_ITEM_DOMAIN, item.kind.encode(), *results, *item.blocks)


def effective_digest(before: bytes, items: Iterable[Item]) -> bytes:
    """The digest of an effective history that goes on from one with the digest `before`."""
    for item in items:
        before = digest(_EFFECTIVE_DOMAIN, before, item_digest(item))
    return before


class BlockHead(msgspec.Struct):
    """What is looked at in a block; everything else stays bytes."""

    type: str = ""
    id: msgspec.Raw = msgspec.Raw()
    text: msgspec.Raw = msgspec.Raw()


class _Usage(msgspec.Struct):
    input_tokens: int | None = 0
    output_tokens: int | None = 0
    cache_creation_input_tokens: int | None = 0
    cache_read_input_tokens: int | None = 0


class _Envelope(msgspec.Struct):
    usage: _Usage | None = None


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_BLOCK = msgspec.json.Decoder(BlockHead)


def block_head(block: bytes) -> BlockHead:
    """Type, id and text of a block. Raises msgspec.DecodeError for what is no object."""
    return _BLOCK.decode(block)


def rewrites(entries: Sequence[pb.Entry]) -> bool:
    """Whether these entries change what entries before them mean: reduce from the start then."""
    skipped = skipped_ids(entries)
    return bool(skipped) and not skipped <= {entry.id for entry in entries}


def wanted_operations(entries: Iterable[pb.Entry]) -> list[str]:
    """Operations whose projections `reduce` needs for these entries."""
    entries = list(entries)
    skipped = skipped_ids(entries)
    return [
        reference.operation_id
        for entry in entries
        if entry.id not in skipped
        for reference in entry.content.results
    ]


def opening(losses: Losses, anchor: pb.Entry | None) -> tuple[Item, ...]:
    """What stands for the entries that the checkpoint covers: its summary, and the input of the
    turn that it cuts through, if it cuts through one."""
    checkpoint = losses.checkpoint
    if checkpoint is None:
        return ()
    summary = Item("summary", checkpoint.through_seq, (checkpoint.block,))
    return (summary,) if anchor is None else (summary, _spoken(anchor, losses))


def reduce(
    entries: Sequence[pb.Entry],
    projections: Mapping[str, Projection],
    losses: Losses = NO_LOSSES,
    open: tuple[Use, ...] = (),
) -> Effective:
    """Effective history of `entries`, which follow a history that ended with the calls `open`.

    With a checkpoint they begin behind what it covers; see `opening`. Raises HistoryCorruptError,
    and OpenCallsError when an entry follows a call without result.
    """
    skipped = skipped_ids(entries)
    items: list[Item] = []
    for entry in entries:
        if entry.kind in _SKIPPING or entry.id in skipped:
            continue
        if not entry.HasField("content") and not _is_redacted(entry, losses):
            raise HistoryCorruptError(f"transcript entry {entry.seq} has no content")
        if open and entry.kind != _RESULTS:
            raise OpenCallsError(f"transcript entry {entry.seq} follows {len(open)} open calls")
        item, open = _item(entry, projections, losses, open)
        items.append(item)
    return Effective(tuple(items), open)


def input_digest(blocks: Iterable[bytes]) -> bytes:
    """What the blocks of an input or an answer are known by before any transition; 32 bytes."""
    return digest(INPUT_DOMAIN, *blocks)


def skipped_ids(entries: Iterable[pb.Entry]) -> set[str]:
    """Entries that these say are skipped."""
    return {id for e in entries if e.kind in _SKIPPING for id in e.content.skipped_entry_ids}


def _item(
    entry: pb.Entry,
    projections: Mapping[str, Projection],
    losses: Losses,
    open: tuple[Use, ...],
) -> tuple[Item, tuple[Use, ...]]:
    content = entry.content
    if entry.kind in SPOKEN:
        return _spoken(entry, losses), ()
    if entry.kind == _ANSWER:
        item = _answer(entry, losses)
        return item, _uses(entry.seq, item.blocks)
    if entry.kind != _RESULTS:
        raise HistoryCorruptError(f"transcript entry {entry.seq} has an unknown kind")
    if [r.block_index for r in content.results] != [use.block_index for use in open]:
        raise HistoryCorruptError(
            f"transcript entry {entry.seq}: the results do not answer the calls before them"
        )
    results = tuple(
        _result(entry.seq, reference, use, projections.get(reference.operation_id), losses)
        for reference, use in zip(content.results, open, strict=True)
    )
    item = Item(
        "results",
        entry.seq,
        tuple(content.trailing_blocks),
        results,
        entry.turn_id,
        entry_digest=entry.digest,
    )
    return item, ()


def _spoken(entry: pb.Entry, losses: Losses) -> Item:
    blocks = tuple(entry.content.blocks)
    chain = losses.transitions.get(Target(entry.seq, INPUT_PART))
    ordinal = 0
    if chain:
        folded = fold(input_digest(blocks), chain)
        ordinal = folded.ordinal
        blocks = _with_omissions(blocks, folded)
    return Item(
        "input",
        entry.seq,
        blocks,
        (),
        entry.turn_id,
        ordinal=ordinal,
        entry_digest=entry.digest,
    )


def _answer(entry: pb.Entry, losses: Losses) -> Item:
    content = entry.content
    item = Item(
        "answer",
        entry.seq,
        tuple(content.blocks),
        turn_id=entry.turn_id,
        measured_tokens=_measured(content.envelope),
        snapshot_id=content.snapshot_id,
        entry_digest=entry.digest,
    )
    chain = losses.transitions.get(Target(entry.seq, ANSWER_PART))
    if not chain:
        return item
    # The same whether the transcript has erased it yet or not: what was measured is of something
    # else.
    folded = fold(input_digest(item.blocks), chain)
    shown = answer_blocks(folded) if folded.is_redacted else answers.stand_in(item.blocks)
    return item._replace(blocks=shown, ordinal=folded.ordinal, measured_tokens=0, snapshot_id="")


def _is_redacted(entry: pb.Entry, losses: Losses) -> bool:
    """Whether the content was erased, as it should be."""
    if entry.kind not in (*SPOKEN, _ANSWER):
        return False
    part = ANSWER_PART if entry.kind == _ANSWER else INPUT_PART
    return is_redacted(losses.transitions.get(Target(entry.seq, part), ()))


def _with_omissions(blocks: tuple[bytes, ...], folded: Folded) -> tuple[bytes, ...]:
    if folded.is_redacted:
        return (REDACTED_BLOCK,)
    left_out = omitted_blocks(folded)
    if left_out is None or not left_out <= set(range(len(blocks))):
        return (WITHHELD_BLOCK,)
    return tuple(
        OMITTED_BLOCK if index in left_out else block for index, block in enumerate(blocks)
    )


def _measured(envelope: bytes) -> int:
    """What the usage in an answer's envelope says of request and answer together."""
    try:
        usage = _ENVELOPE.decode(envelope).usage if envelope else None
    except msgspec.DecodeError:
        return 0
    if usage is None:
        return 0
    asked = (usage.input_tokens, usage.cache_creation_input_tokens, usage.cache_read_input_tokens)
    total = sum(count or 0 for count in asked)
    return total + (usage.output_tokens or 0) if total > 0 else 0


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
    seq: int,
    reference: pb.ResultReference,
    use: Use,
    projection: Projection | None,
    losses: Losses,
) -> Result:
    id = reference.operation_id
    chain: Sequence[Transition] = ()
    if losses.transitions:
        chain = losses.transitions.get(Target(seq, reference.block_index), ())
    body, digest, ordinal = b"", reference.projection_digest, 0
    if not is_redacted(chain):
        if projection is None or not projection.body:
            raise HistoryCorruptError(f"transcript entry {seq}: {id} has no projection")
        body = projection.body
        if reading.digest(body) != digest:
            raise HistoryCorruptError(f"transcript entry {seq}: the projection of {id} was changed")
    if chain:
        folded = fold(digest, chain)
        body, digest, ordinal = folded.replacement, folded.digest, folded.ordinal
    try:
        shown = reading.read(body)
    except ValueError:
        if ordinal:
            shown = reading.read(WITHHELD)
        else:
            raise HistoryCorruptError(
                f"transcript entry {seq}: the projection of {id} is of an unknown version"
            ) from None
    return Result(use, shown.parts, shown.is_error, id, digest, ordinal)
