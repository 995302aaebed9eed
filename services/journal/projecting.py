"""Outcomes as the journal takes them in: projected, and their bytes stored, before they are
committed."""

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

import structlog
from counterfoil.journal.v1 import journal_pb2 as pb

from foundation.outcomes import PROJECTION_FAILED, PROJECTION_TIMEOUT
from services.journal.projection import Plan, Projected
from services.journal.projector import Policy, deny, fail, project
from services.journal.records import Late
from services.journal.redaction import Redactor
from services.journal.rows import ThreadKey
from services.journal.staging import Staging
from services.journal.workers import Broke, TookTooLong, Workers

_INLINE_BYTES_MAX = 256 * 1024
"""What is projected at once, on the loop: linear work of some milliseconds. Longer
outcomes, and all that patterns of a deployment are matched with, go to a process that can be
ended."""

_log = structlog.get_logger("counterfoil.journal")


class Planned(NamedTuple):
    """An outcome, and what is to be committed of it."""

    outcome: pb.Outcome
    plan: Plan


class Projecting:
    """Projects outcomes under a deployment's patterns, within bounds, and stores what they refer
    to. There is a projection for every outcome, whatever becomes of its computation."""

    def __init__(self, redactor: Redactor, staging: Staging, workers: Workers) -> None:
        self._redactor = redactor
        self._staging = staging
        self._workers = workers

    async def plan(self, key: ThreadKey, outcome: pb.Outcome) -> Planned:
        """What is to be committed of an outcome; stores nothing."""
        return Planned(outcome, await self._plan(outcome, self._policy(key)))

    async def keep(self, key: ThreadKey, planned: Mapping[str, Planned]) -> dict[str, Projected]:
        """Store the bytes of plans, by operation. The projections that may be committed now: where
        bytes could not be stored, one that says so."""
        projected = {id: one.plan.projected for id, one in planned.items()}
        heavy = [id for id, one in planned.items() if one.plan.blobs]
        if not heavy:
            return projected
        stored = await asyncio.gather(
            *(self._staging.store(key, id, planned[id].plan.blobs) for id in heavy)
        )
        without = self._policy(key)._replace(keeps_blobs=False)
        missing = [id for id, is_stored in zip(heavy, stored, strict=True) if not is_stored]
        again = await self._plans([planned[id].outcome for id in missing], without)
        return projected | {id: plan.projected for id, plan in zip(missing, again, strict=True)}

    async def received(self, key: ThreadKey, raws: Mapping[str, bytes]) -> dict[str, Projected]:
        """The projections of receipts, by operation, their bytes stored."""
        return await self.projected(
            key, {id: pb.Outcome.FromString(raw) for id, raw in raws.items()}
        )

    async def projected(
        self, key: ThreadKey, outcomes: Mapping[str, pb.Outcome]
    ) -> dict[str, Projected]:
        """The projections of outcomes, by operation, their bytes stored."""
        plans = await self._plans(outcomes.values(), self._policy(key))
        planned = {
            id: Planned(outcome, plan)
            for (id, outcome), plan in zip(outcomes.items(), plans, strict=True)
        }
        return await self.keep(key, planned)

    async def late(self, key: ThreadKey, late: list[Late]) -> list[pb.LateOutcome]:
        """Late outcomes as the model may see them, in words."""
        policy = self._policy(key)._replace(keeps_blobs=False)
        plans = await self._plans([pb.Outcome.FromString(one.raw) for one in late], policy)
        return [one.show(plan.projected) for one, plan in zip(late, plans, strict=True)]

    async def _plans(self, outcomes: Iterable[pb.Outcome], policy: Policy) -> list[Plan]:
        """All at the same time: together they take no longer than one may."""
        return await asyncio.gather(*(self._plan(one, policy) for one in outcomes))

    async def _plan(self, outcome: pb.Outcome, policy: Policy) -> Plan:
        is_denial = outcome.HasField("denial")
        if is_denial:
            reason = outcome.denial.reason
            size, work = len(reason), partial(deny, reason, policy)
        else:
            content, is_error = outcome.content, outcome.is_error
            size, work = len(content), partial(project, content, is_error=is_error, policy=policy)
        if self._redactor.is_empty and size <= _INLINE_BYTES_MAX:
            return work()
        try:
            return await self._workers.run(work)
        except TookTooLong:
            code = PROJECTION_TIMEOUT
        except Broke:
            code = PROJECTION_FAILED
        _log.warning("a result could not be projected", code=code, size=size)
        # A call that was denied did not run, whatever its reason: that is still to be said.
        return deny("", policy) if is_denial else fail(code, policy)

    def _policy(self, key: ThreadKey) -> Policy:
        return Policy(key.workspace_id, self._redactor)
