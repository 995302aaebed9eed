"""Calls are repeated while a repeat may fare better, and only so often."""

from collections.abc import Mapping

import pytest
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.errors import Failure
from foundation.rpc.status import TRANSPORT
from services.runner import authorities
from services.runner.authorities import Unanswered, answered


class Dependency:
    """Fails as often as it is told, then answers."""

    def __init__(self, failure: Failure, times: int) -> None:
        self.failure = failure
        self.times = times
        self.calls = 0

    async def __call__(self, request: object, *, timeout: float) -> str:  # noqa: ASYNC109
        self.calls += 1
        if self.calls <= self.times:
            raise self.failure
        return "answer"


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorities, "_PAUSE_SECONDS", 0)


def failure(
    reason: "reasons.ErrorReason.ValueType", metadata: Mapping[str, str] | None = None
) -> Failure:
    return Failure(reason, "it failed", metadata=metadata)


AWAY = failure(reasons.ERROR_REASON_UNAVAILABLE)
UNEXPLAINED = failure(reasons.ERROR_REASON_INTERNAL, {TRANSPORT: "unknown"})
RAISED = failure(reasons.ERROR_REASON_INTERNAL)


@pytest.mark.parametrize("why", [AWAY, UNEXPLAINED])
async def test_what_may_fare_better_is_repeated(why: Failure) -> None:
    assert await answered(Dependency(why, 2), None) == "answer"


async def test_what_the_other_side_raised_is_not_repeated() -> None:
    dependency = Dependency(RAISED, 1)
    with pytest.raises(Failure):
        await answered(dependency, None)
    assert dependency.calls == 1


async def test_repeats_are_bounded() -> None:
    """An outage is waited for with the lease given back; what nobody can explain counts."""
    with pytest.raises(Unanswered):
        await answered(Dependency(AWAY, 100), None)
    dependency = Dependency(UNEXPLAINED, 100)
    with pytest.raises(Failure) as caught:
        await answered(dependency, None)
    assert caught.value.reason == reasons.ERROR_REASON_INTERNAL
    assert 1 < dependency.calls < 20
