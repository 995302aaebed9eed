"""Outcomes as the journal takes them in: projected before they are committed."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from counterfoil.journal.v1 import journal_pb2 as pb

from services.journal.projection import Plan
from services.journal.projector import Policy, deny, project
from services.journal.records import Late
from services.journal.redaction import Redactor
from services.journal.rows import Outcome, ThreadKey

Result = TypeVar("Result")

_ASIDE_BYTES = 256 * 1024


class Projecting:
    """Projects outcomes under a deployment's patterns."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    async def given(self, key: ThreadKey, outcome: pb.Outcome) -> Outcome:
        """An outcome that somebody gives, and what the model sees of it."""
        raw = outcome.SerializeToString(deterministic=True)
        plan = await self._plan(outcome, self._policy(key))
        return Outcome(raw, plan.projected)

    async def received(self, key: ThreadKey, raw: bytes) -> Outcome:
        """An outcome that was journaled before, and what the model sees of it."""
        return await self.given(key, pb.Outcome.FromString(raw))

    async def late(self, key: ThreadKey, late: list[Late]) -> list[pb.LateOutcome]:
        """Late outcomes as the model may see them."""
        policy = self._policy(key)
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
        return Policy(key.workspace_id, self._redactor, keeps_blobs=False)


async def _aside(size: int, work: Callable[[], Result]) -> Result:
    """Do the work here, or in a thread when it is long enough to hold up others."""
    return work() if size <= _ASIDE_BYTES else await asyncio.to_thread(work)
