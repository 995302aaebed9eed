"""Makes a thread's history smaller, by record: each step decides from effective history, commits,
and only then is anything shown that way."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

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
from services.context.materializer import IMAGE_BYTES_MAX, item_tokens, tokens_of
from services.context.planning import (
    ARCHIVE_TOOL,
    check_batch,
    has_images,
    plan_image_budget,
    plan_image_omission,
    plan_pruning,
)
from services.context.recipe import Frame, ThreadKey
from services.context.records import Records
from services.context.reducer import Item, effective_digest
from services.context.transitions import RefusedTransition, Transition

COMPACTIONS_OF_ROUND_MAX = 2
"""Summaries that one round of a turn may have."""

_SUMMARY_PART = 8
"""A summary takes at most this part of the room, …"""
_SUMMARY_PART_AGGRESSIVE = 16
_SUMMARY_BYTES_MIN = 1_200
_KEPT = 0.5
"""… and what is kept behind it aims at this part, so that the next one is not due soon."""
_KEPT_AGGRESSIVE = 0.25
IMAGES_FULL = 0.75
"""Above this part of the budget of images, the oldest are left out, …"""
_IMAGES_KEPT = 0.5
"""… until they take this part."""

Mode = Literal["extractive", "model"]


class Recorded(NamedTuple):
    """A step was taken."""

    losses: Losses
    reason: Literal["pruned", "images", "compacted"]


class SummaryWanted(NamedTuple):
    """A model has to write a summary of everything through the cut first."""

    plan_id: str
    cut: Cut
    bytes_max: int


class Stale(Exception):
    """Somebody else recorded something meanwhile: read again, decide again."""


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


class Shrinker:
    """Decides and records what is taken from history."""

    def __init__(self, records: Records, mode: Mode = "extractive") -> None:
        self._records = records
        self._mode = mode

    async def prune(self, case: Case) -> Recorded | None:
        """Archive results, if that alone makes room; None when it does not."""
        if not prunes(case.frame.runtime):
            return None
        plan = plan_pruning(case.key, case.items, case.losses, case.tokens, case.limit)
        return await self._transitions(case, plan, "pruned") if plan else None

    async def omit_images(self, case: Case) -> Recorded | None:
        """Leave images out; None when there is none."""
        if not has_images(case.items, case.losses):
            return None
        reason = "image_omitted_after_overflow"
        plan = plan_image_omission(case.key, case.items, case.losses, reason)
        return await self._transitions(case, plan, "images") if plan else None

    async def spare_images(self, case: Case) -> Recorded | None:
        """Leave the oldest images out before the newest ones find no room; None when there is none
        to leave out."""
        bytes_max = int(IMAGE_BYTES_MAX * _IMAGES_KEPT)
        plan = plan_image_budget(case.key, case.items, case.losses, bytes_max)
        return await self._transitions(case, plan, "images") if plan else None

    async def compact(self, case: Case) -> Recorded | SummaryWanted | None:
        """Replace the beginning by a summary; None when there is nothing to cover, it would hardly
        help, or the round has had all that it may have."""
        had = await self._records.checkpoints_of_round(case.key, case.turn)
        if had >= COMPACTIONS_OF_ROUND_MAX:
            return None
        bytes_max = _summary_bytes(case)
        kept = _KEPT_AGGRESSIVE if case.overflowed else _KEPT
        room = int(case.limit * kept) - case.frame_tokens - text_tokens(bytes_max)
        cut = plan_cut(case.items, case.losses, room, covers_unseen=False)
        most = case.limit - case.frame_tokens - text_tokens(bytes_max)
        if cut is None or cut.tokens_kept > most:
            cut = plan_cut(case.items, case.losses, room, covers_unseen=True)
        if cut is None:
            return None
        plan_id = _plan_id(case, cut)
        cause = _cause(case)
        made = _checkpoint(case, cut, bytes_max, cause, _text_of(case.given, plan_id))
        if not _helps(made, case.losses):
            return None  # and no model is asked for a summary that is of no use
        if self._mode == "model" and case.given is None and case.asks_model:
            return SummaryWanted(plan_id, cut, bytes_max)
        return await self._checkpoint(case, made)

    def is_foreign(self, losses: Losses, runtime: runtime_pb2.SessionRuntime) -> bool:
        """Whether the summary was made for another model or profile."""
        current = losses.checkpoint
        return current is not None and (current.model, current.profile) != profile_of(runtime)

    async def renew(self, case: Case) -> Recorded | None:
        """Make the summary again for this model and profile; what it covers stays covered."""
        current = case.losses.checkpoint
        if current is None:
            return None
        kept = tokens_of(item for item in case.items if item.kind != "summary")
        cut = Cut(0, current.through_seq, current.through_digest, current.anchor_seq, kept)
        made = _checkpoint(case, cut, _summary_bytes(case), "profile_switch", None)
        return await self._checkpoint(case, made)

    async def repair(self, case: Case) -> Recorded | None:
        """Make the summary again that a redaction revoked, of what is left; None where nothing is
        left to cover."""
        cut = plan_repair(case.items, case.losses)
        if cut is None:
            return None
        made = _checkpoint(case, cut, _summary_bytes(case), "redaction_repair", None)
        return await self._checkpoint(case, made)

    async def _transitions(
        self, case: Case, plan: list[Transition], reason: Literal["pruned", "images"]
    ) -> Recorded | None:
        if not _admitted(case, plan):
            return None
        found = await self._records.record_transitions(
            case.key, case.epoch, case.turn, case.losses, plan
        )
        if found is None:
            raise Stale
        return Recorded(found, reason)

    async def _checkpoint(self, case: Case, made: Checkpoint) -> Recorded | None:
        if not _helps(made, case.losses):
            return None
        found = await self._records.record_checkpoint(
            case.key, case.epoch, case.turn, case.losses, made
        )
        if found is None:
            raise Stale
        return Recorded(found, "compacted")


def _helps(made: Checkpoint, losses: Losses) -> bool:
    """Whether a checkpoint may be recorded."""
    try:
        check(made, losses.checkpoint, losses.last_id)
    except RefusedCheckpoint:
        return False
    return True


def _admitted(case: Case, plan: Sequence[Transition]) -> bool:
    """Whether every transition of a plan may be recorded: the plan is not trusted either."""
    try:
        check_batch(plan, case.items, case.losses)
    except RefusedTransition:
        return False
    return True


def prunes(runtime: runtime_pb2.SessionRuntime) -> bool:
    """Whether the session can read archived results again, and so may have some archived."""
    return any(
        tool.name == ARCHIVE_TOOL and tool.owner == runtime_pb2.TOOL_OWNER_PLATFORM_MANAGED
        for tool in runtime.tools
    )


def profile_of(runtime: runtime_pb2.SessionRuntime) -> tuple[str, str]:
    """What a summary was made for: the model, and the profile with its version."""
    return runtime.model, f"{runtime.profile.id}:{runtime.profile.version}"


def aggressive_limit(limits: Limits, tokens_refused: int) -> int:
    """What a request should take after the provider refused one of so many estimated tokens: its
    window is smaller than it is said to be, or the estimate is too low."""
    return max(1, min(limits.input_tokens_limit, tokens_refused // 2))


def _cause(case: Case) -> Cause:
    """Why a summary is made: also because a redaction took the one before."""
    if case.overflowed:
        return "overflow"
    return "redaction_repair" if case.losses.revoked_through else "window"


def _summary_bytes(case: Case) -> int:
    part = _SUMMARY_PART_AGGRESSIVE if case.overflowed else _SUMMARY_PART
    room = case.limit // part * BYTES_PER_TOKEN
    return max(_SUMMARY_BYTES_MIN, min(room, SUMMARY_BYTES_MAX - 1024))


def _plan_id(case: Case, cut: Cut) -> str:
    return ids.derived(
        "checkpoint", "plan", *case.key, cut.through_seq, cut.through_digest, case.losses.version
    )


def _text_of(given: pb.ModelSummary | None, plan_id: str) -> tuple[str, str] | None:
    """A usable text that a model wrote for this plan, and the call that brought it."""
    if given is None or given.plan_id != plan_id:
        return None
    text = summary.model_text(given.text)
    if text is None or len(text.encode()) > SUMMARY_BYTES_MAX - 1024:
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
    model, profile = profile_of(case.frame.runtime)
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
