"""When a failed provider call is tried again. Pure."""

from dataclasses import dataclass

from foundation.digests import digest
from services.runner.adapter import ProviderFailure

_DOMAIN = "counterfoil.retry.v1"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and after how long, a provider call is repeated within a round."""

    retries_max: int = 3
    wait_ms: int = 1000
    """Wait before the first retry where the provider names none; doubles with each further one."""
    wait_ms_max: int = 60_000

    def wait(self, failure: ProviderFailure, retries: int, spread: float) -> int | None:
        """Milliseconds until the next attempt; None when there is none.

        `retries` is how many there were. What the provider asks for is kept, up to the maximum;
        our own wait is shortened by up to a quarter, `spread` being from 0 to 1, so that many
        turns that failed together do not come back together.
        """
        if not failure.retryable or retries >= self.retries_max:
            return None
        if failure.retry_after_seconds is not None:
            return round(min(failure.retry_after_seconds * 1000, self.wait_ms_max))
        wait = min(self.wait_ms * 2**retries, self.wait_ms_max)
        return round(wait * (1 - spread / 4))


DEFAULT_POLICY = RetryPolicy()


def spread_of(turn_id: str, epoch: int) -> float:
    """A number from 0 to 1 that differs from turn to turn and from claim to claim."""
    drawn = digest(_DOMAIN, turn_id.encode(), str(epoch).encode())
    return int.from_bytes(drawn[:4], "big") / 2**32
