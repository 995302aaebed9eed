"""Makes a thread's history smaller, by record: each step decides from effective history, commits,
and only then is anything shown that way."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from services.context.checkpoints import Checkpoint
from services.context.compaction import Case, compaction, prunes, renewal, repair
from services.context.cutting import Cut
from services.context.losses import Losses
from services.context.materializer import IMAGE_BYTES_MAX
from services.context.planning import (
    check_batch,
    has_images,
    plan_image_budget,
    plan_image_omission,
    plan_pruning,
)
from services.context.records import Records
from services.context.transitions import RefusedTransition, Transition

COMPACTIONS_OF_ROUND_MAX = 2
"""Summaries that one round of a turn may have."""

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
        plan = compaction(case)
        if plan is None:
            return None  # and no model is asked for a summary that is of no use
        if self._mode == "model" and case.given is None and case.asks_model:
            return SummaryWanted(plan.id, plan.cut, plan.bytes_max)
        return await self._checkpoint(case, plan.made)

    async def renew(self, case: Case) -> Recorded | None:
        """Make the summary again for this model and profile; None when that may not be."""
        made = renewal(case)
        return await self._checkpoint(case, made) if made else None

    async def repair(self, case: Case) -> Recorded | None:
        """Make the summary again that a redaction revoked, of what is left; None where nothing is
        left to cover."""
        made = repair(case)
        return await self._checkpoint(case, made) if made else None

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

    async def _checkpoint(self, case: Case, made: Checkpoint) -> Recorded:
        found = await self._records.record_checkpoint(
            case.key, case.epoch, case.turn, case.losses, made
        )
        if found is None:
            raise Stale
        return Recorded(found, "compacted")


def _admitted(case: Case, plan: Sequence[Transition]) -> bool:
    """Whether every transition of a plan may be recorded: the plan is not trusted either."""
    try:
        check_batch(plan, case.items, case.losses)
    except RefusedTransition:
        return False
    return True
