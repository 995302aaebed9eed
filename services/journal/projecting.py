"""Outcomes as the journal takes them in: projected, and their bytes stored, before they are
committed."""

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from counterfoil.journal.v1 import journal_pb2 as pb

from services.journal.projection import Plan, Projected
from services.journal.projector import Policy, deny, project
from services.journal.records import Late
from services.journal.redaction import Redactor
from services.journal.rows import ThreadKey
from services.journal.staging import Staging

Result = TypeVar("Result")

_ASIDE_BYTES = 256 * 1024


class Planned(NamedTuple):
    """An outcome, and what is to be committed of it."""

    outcome: pb.Outcome
    plan: Plan


class Projecting:
    """Projects outcomes under a deployment's patterns, and stores what they refer to."""

    def __init__(self, redactor: Redactor, staging: Staging) -> None:
        self._redactor = redactor
        self._staging = staging

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
        for id, is_stored in zip(heavy, stored, strict=True):
            if not is_stored:
                projected[id] = (await self._plan(planned[id].outcome, without)).projected
        return projected

    async def received(self, key: ThreadKey, raws: Mapping[str, bytes]) -> dict[str, Projected]:
        """The projections of receipts, by operation, their bytes stored."""
        outcomes = {id: pb.Outcome.FromString(raw) for id, raw in raws.items()}
        planned = {id: await self.plan(key, outcome) for id, outcome in outcomes.items()}
        return await self.keep(key, planned)

    async def late(self, key: ThreadKey, late: list[Late]) -> list[pb.LateOutcome]:
        """Late outcomes as the model may see them, in words."""
        policy = self._policy(key)._replace(keeps_blobs=False)
        # What was given is as large as 32 MiB each.
        size = sum(len(one.raw) for one in late)
        return await _aside(size, lambda: [one.show(policy) for one in late])

    async def _plan(self, outcome: pb.Outcome, policy: Policy) -> Plan:
        if outcome.HasField("denial"):
            return deny(outcome.denial.reason, policy)
        content, is_error = outcome.content, outcome.is_error
        return await _aside(
            len(content), lambda: project(content, is_error=is_error, policy=policy)
        )

    def _policy(self, key: ThreadKey) -> Policy:
        return Policy(key.workspace_id, self._redactor)


async def _aside(size: int, work: Callable[[], Result]) -> Result:
    """Do the work here, or in a thread when it is long enough to hold up others."""
    return work() if size <= _ASIDE_BYTES else await asyncio.to_thread(work)
