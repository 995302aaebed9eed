"""Plans what to take from a history so that a request fits. Pure.

Three ways, in this order: tool results that the model has read are archived, if that alone makes
room; images are left out, when the provider refused the request; and the beginning of the history
is replaced by a summary (`cutting`). A plan is made as a whole and recorded as one batch, because
every change of what was sent before makes the provider's cache start again there. The newest
results go first: that keeps the longest beginning as it was.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from foundation import projections
from foundation.projections import Artifact, Text
from services.context.estimates import is_refused
from services.context.losses import Losses
from services.context.materializer import (
    image_bytes_of,
    item_tokens,
    result_tokens,
    shown_results,
    tokens_of,
)
from services.context.reducer import OMITTED_BLOCK, Item, Result, block_head, input_digest
from services.context.transitions import (
    BATCH_MAX,
    CHAIN_MAX,
    INPUT_PART,
    Current,
    Folded,
    Reason,
    RefusedTransition,
    Target,
    Transition,
    check,
    is_redacted,
    omission,
    omitted_blocks,
    transition,
)

ARCHIVE_TOOL = "read_archive"
LARGE_TOKENS = 2_048
"""A result that is smaller is not worth a break of the cache."""
SUPERSEDED_TOKENS = 256
RECENT_TURNS = 2
"""Results of so many newest turns are not stale."""
HEAD_CODE_POINTS = 400
TARGET = 0.7
"""What pruning goes down to, as a part of what triggers it; else it would run again at once."""
ENOUGH = 0.9
"""Pruning that stays above this part does not avert a compaction for long: it is not done."""

IMAGE_OMITTED_TEXT = "(an image was left out here to make the request fit)"

_ARCHIVED: tuple[Reason, ...] = (
    "active_tool_result_archived",
    "stale_tool_result_archived",
    "superseded_tool_result",
)

Key = tuple[str, str, str]


class _Candidate(NamedTuple):
    """A result that may be archived."""

    target: Target
    result: Result
    reason: Reason
    detail: str


class _Call(msgspec.Struct):
    name: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()


_CALL = msgspec.json.Decoder(_Call)


def plan_pruning(
    key: Key, items: Sequence[Item], losses: Losses, tokens: int, trigger: int
) -> list[Transition]:
    """Archivings that bring a request of so many estimated tokens well below `trigger`; none when
    they cannot."""
    plan: list[Transition] = []
    shown = dict[Target, Result]()
    around, estimated = tokens - tokens_of(items), tokens
    for one in reversed(_candidates(items, losses)):
        if estimated <= TARGET * trigger:
            # Archived images may make room for others that found none: the whole is what counts.
            estimated = around + tokens_of(_with_results(items, shown))
        if estimated <= TARGET * trigger or len(plan) == BATCH_MAX:
            break
        archived = _archived(one.result)
        saved = result_tokens(one.result) - result_tokens(archived.shown)
        if saved <= 0:
            continue
        before = _folded(losses, one.target, one.result.digest)
        plan.append(transition(key, one.target, before, archived.body, one.reason, one.detail))
        shown[one.target] = archived.shown
        estimated -= saved
    left = around + tokens_of(_with_results(items, shown)) if plan else tokens
    return plan if left <= ENOUGH * trigger else []


def _with_results(items: Iterable[Item], shown: Mapping[Target, Result]) -> Iterable[Item]:
    """The items with other results in some places."""
    for item in items:
        results = (shown.get(Target(item.seq, r.use.block_index), r) for r in item.results)
        yield item._replace(results=tuple(results))


def current_of(items: Iterable[Item], losses: Losses, target: Target) -> Current | None:
    """What a target shows now; None when history does not show it."""
    item = next((item for item in items if item.seq == target.seq), None)
    if item is None:
        return None
    if target.part == INPUT_PART:
        folded = _folded(losses, target, input_digest(item.blocks))
        return Current(folded, folded.replacement, item_tokens(item), len(item.blocks))
    for result in item.results:
        if result.use.block_index == target.part:
            body = projections.write_content(
                [projections.part_value(p) for p in result.parts], is_error=result.is_error
            )
            return Current(_folded(losses, target, result.digest), body, result_tokens(result))
    return None


def tokens_after(one: Transition, current: Current, item: Item) -> int:
    """What the target of a transition takes behind it."""
    if one.part != INPUT_PART:
        shown = projections.read(one.replacement)
        use = next(r.use for r in item.results if r.use.block_index == one.part)
        return result_tokens(Result(use, shown.parts, shown.is_error))
    left_out = omitted_blocks(Folded(one.replacement, b"", "", 1)) or set()
    return item_tokens(
        item._replace(
            blocks=tuple(OMITTED_BLOCK if i in left_out else b for i, b in enumerate(item.blocks))
        )
    )


def check_batch(batch: Sequence[Transition], items: Sequence[Item], losses: Losses) -> None:
    """Raise RefusedTransition unless all of a batch may be recorded together."""
    if len(batch) > BATCH_MAX:
        raise RefusedTransition("LIMIT", f"a batch has at most {BATCH_MAX} transitions")
    if len({one.target for one in batch}) != len(batch):
        raise RefusedTransition("INVALID", "a batch changes each target once")
    shown = {item.seq: item for item in items}
    for one in batch:
        current = current_of(items, losses, one.target)
        if current is None:
            raise RefusedTransition("TARGET_MISSING", f"entry {one.seq} shows no such part")
        try:
            after = tokens_after(one, current, shown[one.seq])
        except ValueError:
            message = f"the replacement of entry {one.seq} cannot be read"
            raise RefusedTransition("INVALID", message) from None
        check(one, current, losses.covered_through, after)


def plan_image_omission(
    key: Key, items: Sequence[Item], losses: Losses, reason: Reason
) -> list[Transition]:
    """Leaves images out: those of earlier turns if they are at least half of all, else all."""
    current = items[-1].turn_id if items else ""
    places = [(index, count) for index, item in enumerate(items) if (count := _images(item))]
    earlier = [(index, count) for index, count in places if items[index].turn_id != current]
    enough = sum(n for _, n in earlier) * 2 >= sum(n for _, n in places)
    chosen = earlier if earlier and enough else places
    plan = [
        one
        for index, _ in chosen
        if items[index].seq > losses.covered_through
        for one in _without_images(key, items[index], losses, reason)
    ]
    return plan[:BATCH_MAX]


def plan_image_budget(
    key: Key, items: Sequence[Item], losses: Losses, bytes_max: int
) -> list[Transition]:
    """Leaves out the oldest result images that the model has seen, so that no more than so many
    bytes are left: what comes next is then sent, too."""
    answered = max((i for i, item in enumerate(items) if item.kind == "answer"), default=0)
    left = sum(map(image_bytes_of, items))
    plan: list[Transition] = []
    for item in items[:answered]:
        if left <= bytes_max or len(plan) >= BATCH_MAX:
            break
        if item.kind == "results" and item.seq > losses.covered_through and _images(item):
            plan += _without_images(key, item, losses, "image_omitted_budget")
            left -= image_bytes_of(item)
    return plan[:BATCH_MAX]


def has_images(items: Iterable[Item], losses: Losses) -> bool:
    """Whether there is an image that could be left out."""
    return any(_images(item) for item in items if item.seq > losses.covered_through)


def _candidates(items: Sequence[Item], losses: Losses) -> list[_Candidate]:
    """What may be archived, oldest first: results that an answer follows, so the model read them
    once."""
    turns = list(dict.fromkeys(item.turn_id for item in items if item.kind != "summary"))
    recent, current = set(turns[-RECENT_TURNS:]), turns[-1] if turns else ""
    answered = max((i for i, item in enumerate(items) if item.kind == "answer"), default=0)
    newer = _newest_calls(items[: answered + 1])
    found: list[_Candidate] = []
    for index, item in enumerate(items[:answered]):
        if item.kind != "results" or item.seq <= losses.covered_through:
            continue
        calls = _calls(items[index - 1])
        for result in shown_results(item):
            target = Target(item.seq, result.use.block_index)
            if result.ordinal >= CHAIN_MAX or _is_archived(losses, target):
                continue
            by = newer.get(calls.get(result.use.block_index, b""), result.operation_id)
            tokens = result_tokens(result)
            if by != result.operation_id and tokens > SUPERSEDED_TOKENS:
                found.append(_Candidate(target, result, "superseded_tool_result", by))
            elif tokens > LARGE_TOKENS and item.turn_id == current:
                found.append(_Candidate(target, result, "active_tool_result_archived", ""))
            elif tokens > LARGE_TOKENS and item.turn_id not in recent:
                found.append(_Candidate(target, result, "stale_tool_result_archived", ""))
    return found


def _newest_calls(items: Sequence[Item]) -> dict[bytes, str]:
    """The newest operation of each call that was made several times in the same words."""
    newest: dict[bytes, str] = {}
    for index, item in enumerate(items):
        if item.kind == "results":
            calls = _calls(items[index - 1])
            for result in item.results:
                if said := calls.get(result.use.block_index):
                    newest[said] = result.operation_id
    return newest


def _calls(answer: Item) -> dict[int, bytes]:
    """What the calls of an answer say, by block index: name and input, exact bytes."""
    said: dict[int, bytes] = {}
    for index, block in enumerate(answer.blocks):
        if block_head(block).type == "tool_use":
            call = _CALL.decode(block)
            said[index] = bytes(call.name) + b"\n" + bytes(call.input)
    return said


def _is_archived(losses: Losses, target: Target) -> bool:
    chain = losses.transitions.get(target)
    return bool(chain) and any(one.reason in (*_ARCHIVED, "redaction") for one in chain)


class _Archived(NamedTuple):
    body: bytes
    shown: Result


def _archived(result: Result) -> _Archived:
    """What is shown instead: where to read it, how it begins, and the files that it names."""
    texts = [msgspec.json.decode(p.raw, type=str) for p in result.parts if isinstance(p, Text)]
    said = "\n".join(texts)
    images = sum(1 for p in result.parts if _is_image(p))
    pictures = f" and {images} image(s)" if images else ""
    kept = [p for p in result.parts if isinstance(p, Artifact) and not _is_image(p)]
    # What is shown of a text that was too long says nothing of its length.
    size = f"{sum(p.size for p in kept):,} bytes" if kept else f"{len(said)} characters"
    notice = (
        f"(This result was archived to save room: {size}{pictures}. Read it with "
        f'{ARCHIVE_TOOL}, ref "{result.operation_id}". It begins:)\n'
    )
    text = {"kind": "text", "text": notice + said[:HEAD_CODE_POINTS]}
    parts: list[object] = [text, *map(projections.part_value, kept)]
    body = projections.write_content(parts, is_error=result.is_error)
    shown = result._replace(parts=(Text(msgspec.json.encode(text["text"])), *kept))
    return _Archived(body, shown)


def _without_images(key: Key, item: Item, losses: Losses, reason: Reason) -> Iterable[Transition]:
    if item.kind == "input":
        target = Target(item.seq, INPUT_PART)
        before = _folded(losses, target, input_digest(item.blocks))
        gone = (omitted_blocks(before) or set()) if before.ordinal else set[int]()
        images = {i for i, block in enumerate(item.blocks) if _is_image_block(block)}
        if images and before.ordinal < CHAIN_MAX:
            yield transition(key, target, before, omission([*gone, *images]), reason)
    for result in shown_results(item):
        if any(map(_is_image, result.parts)) and result.ordinal < CHAIN_MAX:
            target = Target(item.seq, result.use.block_index)
            before = _folded(losses, target, result.digest)
            parts: list[object] = [
                projections.text_part(IMAGE_OMITTED_TEXT)
                if _is_image(p)
                else projections.part_value(p)
                for p in result.parts
            ]
            body = projections.write_content(parts, is_error=result.is_error)
            yield transition(key, target, before, body, reason)


def _folded(losses: Losses, target: Target, digest: bytes) -> Folded:
    """Where a target stands; `digest` is that of what it shows now."""
    chain = losses.transitions.get(target)
    if not chain:
        return Folded(b"", digest, "", 0)
    last = chain[-1]
    redacted = is_redacted(chain)
    return Folded(
        last.replacement, last.replacement_digest, last.id, last.ordinal, is_redacted=redacted
    )


def _images(item: Item) -> int:
    own = sum(map(_is_image_block, item.blocks)) if item.kind == "input" else 0
    return own + sum(1 for r in shown_results(item) for p in r.parts if _is_image(p))


def _is_image_block(block: bytes) -> bool:
    """Whether a block is an image that is sent."""
    head = block_head(block)
    return head.type == "image" and not is_refused(block, head)


def _is_image(part: Text | Artifact) -> bool:
    return isinstance(part, Artifact) and part.is_image
