"""Rate limits: each key has its own budget of reads and of writes, regained evenly."""

import pytest

from foundation.errors import Failure
from gateway import limits
from gateway.app import create_app
from gateway.limits import Limiter, Rates
from tests.gateway.support import SESSION, Behaviour, all_fine, client_of, host_of


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def allowed(limiter: Limiter, key: str = "key", *, reads: bool = False) -> bool:
    try:
        limiter.take(key, reads=reads)
    except Failure:
        return False
    return True


def test_a_minute_may_be_used_at_once_and_is_regained_evenly() -> None:
    clock = Clock()
    limiter = Limiter(Rates(create=60), clock)
    assert [allowed(limiter) for _ in range(61)] == [True] * 60 + [False]
    clock.now += 1
    assert [allowed(limiter) for _ in range(2)] == [True, False]
    clock.now += 3600
    assert [allowed(limiter) for _ in range(61)] == [True] * 60 + [False]


def test_keys_and_kinds_have_budgets_of_their_own() -> None:
    limiter = Limiter(Rates(create=1, read=1), Clock())
    assert allowed(limiter)
    assert allowed(limiter, "other")
    assert allowed(limiter, reads=True)
    assert not allowed(limiter)


def test_no_limit_counts_nothing() -> None:
    limiter = Limiter(Rates(read=1), Clock())
    assert all(allowed(limiter) for _ in range(1000))


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_KEYS_MAX", 10)
    limiter = Limiter(Rates(create=5), Clock())
    for number in range(100):
        allowed(limiter, f"key {number}")
    assert len(limiter._buckets) == 10


async def test_one_request_too_many_says_when_to_come_back(behaviour: Behaviour) -> None:
    host = host_of(behaviour)
    app = create_app(lambda _: host.channel(), readiness=all_fine, rates=Rates(read=2))
    async with client_of(app) as client:
        for _ in range(2):
            assert (await client.get(f"/v1/sessions/{SESSION}")).status_code == 200
        refused = await client.get(f"/v1/sessions/{SESSION}")
        assert refused.status_code == 429
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert refused.headers["retry-after"] == "30"
        assert len(behaviour.calls) == 2
        assert (await client.delete(f"/v1/sessions/{SESSION}")).status_code == 200
        assert (await client.get("/healthz")).status_code == 200
