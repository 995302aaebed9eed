"""Transitions: recorded, append-only replacements of something that the model was shown. Pure.

A transition replaces one part of one transcript entry: the result of a call, blocks of an input, or
(only to redact it) an answer.
It names the digest of what it replaces and the transition before it, so the transitions of one
target form a chain, and only its next link is ever accepted. What was replaced stays where it was
(the projection in the journal, the blocks in the transcript); it is only not shown any more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

from foundation import canonical, ids, projections
from foundation.digests import digest
from foundation.projections import REDACTED, Artifact

INPUT_PART = -1
"""The part of an input: all of its blocks. Of a results entry the part is the use's block index."""

ANSWER_PART = -2
"""The part of an answer: all of its blocks. It can only be redacted."""

WITHHELD = canonical.encode({"code": "withheld_unreadable", "kind": "failure", "v": 1})
"""What is shown of a target whose record cannot be read."""

CHAIN_MAX = 16
"""Transitions of one target; a redaction is recorded all the same."""

BATCH_MAX = 256
"""Transitions that are recorded together."""

Reason = Literal[
    "active_tool_result_archived",
    "stale_tool_result_archived",
    "superseded_tool_result",
    "image_omitted_after_overflow",
    "image_omitted_budget",
    "redaction",
]

_OMITS_IMAGES: tuple[Reason, ...] = ("image_omitted_after_overflow", "image_omitted_budget")
_DOMAIN = "counterfoil.replacement.v1"


class Target(NamedTuple):
    """What a transition changes: a transcript entry, and the part of it."""

    seq: int
    part: int


class Transition(msgspec.Struct, frozen=True, array_like=True):
    """One recorded replacement."""

    id: str
    seq: int
    part: int
    ordinal: int
    """Position in the target's chain, from 1."""
    source_digest: bytes
    predecessor_id: str
    """The target's transition before this one; empty for the first."""
    replacement: bytes
    """Canonical JSON: a projection, for an input the blocks that are left out, or what stands for
    an answer."""
    replacement_digest: bytes
    reason: str
    detail: str = ""
    """With a superseded result: the operation that supersedes it."""

    @property
    def target(self) -> Target:
        """What it changes."""
        return Target(self.seq, self.part)


UNREADABLE = "unreadable"
"""Reason of what stands for a record that cannot be opened."""


def unreadable(id: str, seq: int, part: int, ordinal: int) -> Transition:
    """What stands for a record that cannot be opened: it withholds its target."""
    return Transition(id, seq, part, ordinal, b"", "", b"", b"", UNREADABLE)


class _Omission(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    v: Literal[1]
    kind: Literal["omission"]
    blocks: list[int]


class _Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    v: Literal[1]
    kind: Literal["answer"]
    blocks: list[str]


@dataclass(frozen=True, slots=True)
class Folded:
    """What a chain makes of its target."""

    replacement: bytes
    digest: bytes
    last_id: str
    ordinal: int
    is_withheld: bool = False
    is_redacted: bool = False


class RefusedTransition(Exception):
    """A transition that may not be recorded; `reason` is a word of the protocol."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


_OMISSION = msgspec.json.Decoder(_Omission)
_ANSWER = msgspec.json.Decoder(_Answer)


def replacement_digest(part: int, body: bytes) -> bytes:
    """What a replacement is known by: a projection by its own digest, 32 bytes."""
    return digest(_DOMAIN, body) if part < 0 else projections.digest(body)


def fold(base_digest: bytes, chain: Sequence[Transition]) -> Folded:
    """Where a chain leads from a target with this digest. Whatever does not fit withholds the
    target: showing what was replaced would be worse than showing nothing. A redaction ends it, and
    needs nothing of what was there before, which is erased."""
    redaction = next(filter(_is_redaction, chain), None)
    if redaction is not None:
        body = redaction.replacement
        digest_after = replacement_digest(redaction.part, body)
        return Folded(body, digest_after, chain[-1].id, len(chain), is_redacted=True)
    current, last_id, body = base_digest, "", b""
    for ordinal, one in enumerate(chain, start=1):
        fits = (
            one.ordinal == ordinal
            and one.source_digest == current
            and one.predecessor_id == last_id
            and replacement_digest(one.part, one.replacement) == one.replacement_digest
        )
        if not fits or not _decodes(one):
            last_id = chain[-1].id
            return Folded(WITHHELD, digest(_DOMAIN, WITHHELD), last_id, len(chain), True)
        current, last_id, body = one.replacement_digest, one.id, one.replacement
    return Folded(body, current, last_id, len(chain))


def is_redacted(chain: Sequence[Transition]) -> bool:
    """Whether a target was redacted; nothing that comes behind it counts."""
    return any(map(_is_redaction, chain))


def _is_redaction(one: Transition) -> bool:
    if one.reason != "redaction":
        return False
    return _decodes(one) if one.part == ANSWER_PART else one.replacement == REDACTED


def answer(blocks: Sequence[bytes]) -> bytes:
    """The replacement of an answer by these blocks."""
    said = [block.decode() for block in blocks]
    return canonical.encode({"blocks": said, "kind": "answer", "v": 1})


def answer_blocks(folded: Folded) -> tuple[bytes, ...]:
    """Of an answer that was redacted: the blocks that stand for it."""
    return tuple(block.encode() for block in _ANSWER.decode(folded.replacement).blocks)


def omitted_blocks(folded: Folded) -> set[int] | None:
    """Of an input: the indexes of the blocks that are left out; None for all of it."""
    if folded.is_withheld or folded.is_redacted:
        return None
    try:
        return set(_OMISSION.decode(folded.replacement).blocks)
    except msgspec.DecodeError:
        return None


def omission(blocks: Sequence[int]) -> bytes:
    """The replacement of an input without these blocks."""
    return canonical.encode({"blocks": sorted(blocks), "kind": "omission", "v": 1})


def transition(
    key: tuple[str, str, str],
    target: Target,
    before: Folded,
    replacement: bytes,
    reason: Reason,
    detail: str = "",
) -> Transition:
    """The next link of a target's chain. Its id is derived from what it says, so the same decision
    is the same transition whoever makes it."""
    made = Transition(
        id="",
        seq=target.seq,
        part=target.part,
        ordinal=before.ordinal + 1,
        source_digest=before.digest,
        predecessor_id=before.last_id,
        replacement=replacement,
        replacement_digest=replacement_digest(target.part, replacement),
        reason=reason,
        detail=detail,
    )
    return identified(key, made)


def identified(key: tuple[str, str, str], made: Transition) -> Transition:
    """The transition of a thread with its id, which is derived from what it says."""
    id = ids.derived(
        "transition",
        *key,
        made.seq,
        made.part,
        made.ordinal,
        made.source_digest,
        made.replacement_digest,
        made.reason,
        made.detail,
    )
    return msgspec.structs.replace(made, id=id)


@dataclass(frozen=True, slots=True)
class Current:
    """What a target shows now, as a writer's transition is judged."""

    folded: Folded
    body: bytes
    """Its projection; for an input its blocks' replacement, empty when it has had none."""
    tokens: int
    """Estimate of what it shows."""
    blocks: int = 0
    """With an input: how many blocks it has."""


def check(one: Transition, current: Current, covered_through: int, tokens_after: int) -> None:
    """Raise RefusedTransition unless the transition may be recorded as its target's next one.

    `covered_through`: the last entry that a checkpoint covers; nothing there changes any more,
    except that it may be redacted. `tokens_after`: estimate of the replacement.
    """
    is_redaction = one.reason == "redaction"
    if current.folded.is_redacted:
        raise RefusedTransition("TARGET_REDACTED", f"entry {one.seq} was redacted")
    if one.seq <= covered_through and not is_redaction:
        raise RefusedTransition("TARGET_COVERED", f"entry {one.seq} is covered by a checkpoint")
    if current.folded.is_withheld and not is_redaction:
        raise RefusedTransition("TARGET_WITHHELD", f"entry {one.seq} is withheld")
    folded = current.folded
    expected = (folded.ordinal + 1, folded.digest, folded.last_id)
    if (one.ordinal, one.source_digest, one.predecessor_id) != expected:
        raise RefusedTransition("STALE_SOURCE", f"entry {one.seq} shows something else by now")
    if one.ordinal > CHAIN_MAX and not is_redaction:
        raise RefusedTransition("LIMIT", f"entry {one.seq} has had {CHAIN_MAX} transitions")
    if replacement_digest(one.part, one.replacement) != one.replacement_digest or not _decodes(one):
        raise RefusedTransition("INVALID", f"the replacement of entry {one.seq} cannot be read")
    if is_redaction:
        if not _is_redaction(one):
            raise RefusedTransition("INVALID", "a redaction leaves nothing")
        return
    if one.part == ANSWER_PART:
        raise RefusedTransition("INVALID", "an answer can only be redacted")
    if tokens_after >= current.tokens:
        raise RefusedTransition("NOT_SMALLER", f"entry {one.seq} would not become smaller")
    if one.part == INPUT_PART:
        _check_omission(one, current)
    else:
        _check_projection(one, current.body)


def _check_omission(one: Transition, current: Current) -> None:
    before = omitted_blocks(current.folded) or set() if current.folded.ordinal else set[int]()
    after = set(_OMISSION.decode(one.replacement).blocks)
    if one.reason not in _OMITS_IMAGES:
        raise RefusedTransition("INVALID", "of an input, only images are left out")
    if not before < after or not after <= set(range(current.blocks)):
        raise RefusedTransition("INVALID", f"entry {one.seq} has no such blocks to leave out")


def _check_projection(one: Transition, source: bytes) -> None:
    before, after = projections.read(source), projections.read(one.replacement)
    if before.is_error != after.is_error:
        raise RefusedTransition("INVALID", "a replacement keeps whether the call failed")
    if not _artifacts(after.parts) <= _artifacts(before.parts):
        raise RefusedTransition("INVALID", "a replacement refers to nothing new")
    if one.reason in _OMITS_IMAGES:
        kept = [p for p in before.parts if not _is_image(p)]
        shown = [p for p in after.parts if p in kept]
        if len(before.parts) != len(after.parts) or shown != kept:
            raise RefusedTransition("INVALID", "only images may be left out for this reason")


def _is_image(part: object) -> bool:
    return isinstance(part, Artifact) and part.media_type.startswith("image/")


def _artifacts(parts: Sequence[object]) -> set[str]:
    return {part.id for part in parts if isinstance(part, Artifact)}


def _decodes(one: Transition) -> bool:
    try:
        if one.part == ANSWER_PART:
            _ANSWER.decode(one.replacement)
        elif one.part == INPUT_PART and one.replacement not in (WITHHELD, REDACTED):
            _OMISSION.decode(one.replacement)
        elif one.part != INPUT_PART:
            projections.decode(one.replacement)
    except ValueError:
        return False
    return True
