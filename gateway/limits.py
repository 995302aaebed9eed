"""How many requests a key may make in a minute, in this process: one token bucket for each key."""

import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.errors import Failure
from gateway.answers import RETRY_AFTER

_KEYS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Rates:
    """Requests a minute; 0 for no limit. A stream counts once, when it is opened."""

    create: int = 0
    read: int = 0

    @property
    def any(self) -> bool:
        """Whether something is limited."""
        return bool(self.create or self.read)


class Limiter:
    """The buckets. A key that was idle for a minute has a full one, which need not be kept."""

    def __init__(self, rates: Rates, clock: Callable[[], float] = time.monotonic) -> None:
        self._rates = rates
        self._clock = clock
        self._buckets: OrderedDict[tuple[bytes, bool], tuple[float, float]] = OrderedDict()

    @property
    def active(self) -> bool:
        """Whether something is limited."""
        return self._rates.any

    def take(self, credential: str, *, reads: bool) -> None:
        """Count a request; raises RATE_LIMITED when it is one too many."""
        rate = self._rates.read if reads else self._rates.create
        if not rate:
            return
        key = hashlib.sha256(credential.encode()).digest(), reads
        now = self._clock()
        left, at = self._buckets.pop(key, (float(rate), now))
        left = min(float(rate), left + (now - at) * rate / 60)
        if left < 1:
            self._buckets[key] = left, now
            raise _limited(rate, reads, math.ceil((1 - left) * 60 / rate))
        self._buckets[key] = left - 1, now
        while len(self._buckets) > _KEYS_MAX:
            self._buckets.popitem(last=False)


def _limited(rate: int, reads: bool, seconds: int) -> Failure:
    what = "reads" if reads else "writes"
    return Failure(
        reasons.ERROR_REASON_RATE_LIMITED,
        f"this key may make {rate} {what} a minute; come back in {seconds} s",
        metadata={RETRY_AFTER: str(seconds)},
    )
