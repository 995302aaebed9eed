"""What a summary of a request that is too large would say, and whether it is worth recording. Pure.

The plan is made from effective history and estimates alone, so that whoever asks again, in any
process, gets the same one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec
from counterfoil.context.v1 import context_pb2 as pb
from counterfoil.types.v1 import runtime_pb2

from foundation import ids
from services.context import summary
from services.context.admission import Limits
from services.context.checkpoints import (
    SUMMARY_BYTES_MAX,
    Cause,
    Checkpoint,
    RefusedCheckpoint,
    check,
    identified,
)
from services.context.cutting import Cut, plan_cut, plan_repair
from services.context.estimates import BYTES_PER_TOKEN, text_tokens
from services.context.losses import Losses
from services.context.materializer import item_tokens, tokens_of
from services.context.planning import ARCHIVE_TOOL
from services.context.recipe import Frame, ThreadKey
from services.context.reducer import Item, effective_digest

_SUMMARY_PART = 8
"""A summary takes at most this part of the room, …"""
_SUMMARY_PART_AGGRESSIVE = 16
_SUMMARY_BYTES_MIN = 1_200
_SUMMARY_BYTES_MAX = SUMMARY_BYTES_MAX - 1_024
"""What a block may have, without what it has around its text."""
_KEPT = 0.5
"""… and what is kept behind it aims at this part, so that the next one is not due soon."""
_KEPT_AGGRESSIVE = 0.25


@dataclass(frozen=True, slots=True)
class Case:
    """One request that has to become smaller."""

    key: ThreadKey
    epoch: int
    turn: tuple[str, int]
    """Turn and round."""
    frame: Frame
    losses: Losses
    items: Sequence[Item]
    limit: int
    """Tokens that the request should take at most, its frame included."""
    overflowed: bool
    """The provider refused it: estimates are wrong, so cut deep."""
    asks_model: bool
    """A model can be asked for a summary: its request would fit."""
    given: pb.ModelSummary | None
    """What a model wrote, when it was asked."""

    def refused(self, limit: int) -> "Case":
        """The same, after the provider refused it."""
        return replace(self, limit=limit, overflowed=True, asks_model=False)

    @property
    def frame_tokens(self) -> int:
        """Estimate of what stands around the messages."""
        return text_tokens(len(self.frame.head))

    @property
    def tokens(self) -> int:
        """Estimate of the whole request."""
        return self.frame_tokens + tokens_of(self.items)


class Compaction(NamedTuple):
    """A checkpoint that may be recorded, and what a model needs to write a better text for it."""

    id: str
    cut: Cut
    bytes_max: int
    made: Checkpoint


def compaction(case: Case) -> Compaction | None:
    """A summary in place of the beginning; None when there is nothing to cover, or it would hardly
    help. What a model wrote is used only if it helps, too."""
    bytes_max = summary_bytes(case)
    kept = _KEPT_AGGRESSIVE if case.overflowed else _KEPT
    room = int(case.limit * kept) - case.frame_tokens - text_tokens(bytes_max)
    cut = plan_cut(case.items, case.losses, room, covers_unseen=False)
    most = case.limit - case.frame_tokens - text_tokens(bytes_max)
    if cut is None or cut.tokens_kept > most:
        cut = plan_cut(case.items, case.losses, room, covers_unseen=True)
    if cut is None:
        return None
    id = plan_id(case, cut)
    for text in dict.fromkeys((_text_of(case.given, id), None)):
        made = _checkpoint(case, cut, bytes_max, _cause(case), text)
        if _helps(made, case.losses):
            return Compaction(id, cut, bytes_max, made)
    return None


def renewal(case: Case) -> Checkpoint | None:
    """The summary in force, made again for this model and profile; what it covers stays covered.
    None when there is none, or it may not be recorded."""
    current = case.losses.checkpoint
    if current is None:
        return None
    kept = tokens_of(item for item in case.items if item.kind != "summary")
    cut = Cut(0, current.through_seq, current.through_digest, current.anchor_seq, kept)
    made = _checkpoint(case, cut, summary_bytes(case), "profile_switch", None)
    return made if _helps(made, case.losses) else None


def repair(case: Case) -> Checkpoint | None:
    """The summary that a redaction revoked, made again of what is left. None where nothing is left
    to cover, or it may not be recorded."""
    cut = plan_repair(case.items, case.losses)
    if cut is None:
        return None
    made = _checkpoint(case, cut, summary_bytes(case), "redaction_repair", None)
    return made if _helps(made, case.losses) else None


def is_foreign(losses: Losses, runtime: runtime_pb2.SessionRuntime) -> bool:
    """Whether the summary in force was made for another model or profile."""
    current = losses.checkpoint
    return current is not None and (current.model, current.profile) != _profile_of(runtime)


def aggressive_limit(limits: Limits, tokens_refused: int) -> int:
    """What a request should take after the provider refused one of so many estimated tokens: its
    window is smaller than it is said to be, or the estimate is too low."""
    return max(1, min(limits.input_tokens_limit, tokens_refused // 2))


def prunes(runtime: runtime_pb2.SessionRuntime) -> bool:
    """Whether the session can read archived results again, and so may have some archived."""
    return any(
        tool.name == ARCHIVE_TOOL and tool.owner == runtime_pb2.TOOL_OWNER_PLATFORM_MANAGED
        for tool in runtime.tools
    )


def _profile_of(runtime: runtime_pb2.SessionRuntime) -> tuple[str, str]:
    """What a summary was made for: the model, and the profile with its version."""
    return runtime.model, f"{runtime.profile.id}:{runtime.profile.version}"


def _helps(made: Checkpoint, losses: Losses) -> bool:
    """Whether a checkpoint may be recorded."""
    try:
        check(made, losses.checkpoint, losses.last_id)
    except RefusedCheckpoint:
        return False
    return True


def _cause(case: Case) -> Cause:
    """Why a summary is made: also because a redaction took the one before."""
    if case.overflowed:
        return "overflow"
    return "redaction_repair" if case.losses.revoked_through else "window"


def summary_bytes(case: Case) -> int:
    """What a summary may take: a part of the room, within bounds."""
    part = _SUMMARY_PART_AGGRESSIVE if case.overflowed else _SUMMARY_PART
    room = case.limit // part * BYTES_PER_TOKEN
    return max(_SUMMARY_BYTES_MIN, min(room, _SUMMARY_BYTES_MAX))


def plan_id(case: Case, cut: Cut) -> str:
    """The name of a plan: the same for the same cut through the same history."""
    return ids.derived(
        "checkpoint", "plan", *case.key, cut.through_seq, cut.through_digest, case.losses.version
    )


def _text_of(given: pb.ModelSummary | None, plan_id: str) -> tuple[str, str] | None:
    """A usable text that a model wrote for this plan, and the call that brought it."""
    if given is None or given.plan_id != plan_id:
        return None
    text = summary.model_text(given.text)
    if text is None or len(msgspec.json.encode(text)) > _SUMMARY_BYTES_MAX:
        return None
    return text, given.operation_id


def _checkpoint(
    case: Case, cut: Cut, bytes_max: int, cause: str, by_model: tuple[str, str] | None
) -> Checkpoint:
    current = case.losses.checkpoint
    covered = case.losses.covered_through
    items = [item for item in case.items[: cut.place] if item.seq > covered]
    before = summary.decode(current.sections) if current else summary.Sections()
    tool = ARCHIVE_TOOL if prunes(case.frame.runtime) else ""
    sections = summary.bounded(summary.extended(before, items, tool), bytes_max)
    text = summary.written(sections) if by_model is None else by_model[0]
    block = msgspec.json.encode({"type": "text", "text": text})
    shown = item_tokens(Item("summary", cut.through_seq, (block,)))
    tokens_after = case.frame_tokens + shown + cut.tokens_kept
    model, profile = _profile_of(case.frame.runtime)
    return identified(
        case.key,
        Checkpoint(
            id="",
            through_seq=cut.through_seq,
            through_digest=cut.through_digest,
            effective_digest=effective_digest(current.effective_digest if current else b"", items),
            transitions=case.losses.count,
            anchor_seq=cut.anchor_seq,
            block=block,
            sections=summary.encode(sections),
            format="extractive" if by_model is None else "model",
            operation_id="" if by_model is None else by_model[1],
            previous_id=case.losses.last_id,
            cause=cause,
            model=model,
            profile=profile,
            tokens_before=case.tokens,
            tokens_after=tokens_after,
            policy=summary.POLICY,
        ),
    )
