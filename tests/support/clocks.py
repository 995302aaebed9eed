"""A process whose clock is wrong: for whatever the product reads of the time of day.

Deadlines and pauses go by the monotonic clock, which is the same for all.
"""

import sys
import time
from datetime import datetime, tzinfo
from types import SimpleNamespace
from typing import Self

SECONDS = "COUNTERFOIL_TEST_CLOCK_SECONDS"
"""By how many seconds the clock of a forked process is ahead."""

_PRODUCT = ("cli", "foundation", "services")


def set_ahead(seconds: float) -> None:
    """Moves the clock of this process; later imports are not reached.

    A clock that is right is left alone: what decodes by the type `datetime` does not know `Ahead`.
    """
    if not seconds:
        return

    def now() -> float:
        return time.time() + seconds

    class Ahead(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(now(), tz)

    clock = SimpleNamespace(**vars(time))
    clock.time, clock.time_ns = now, lambda: int(now() * 1e9)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _PRODUCT:
            for attribute, true, wrong in (("time", time, clock), ("datetime", datetime, Ahead)):
                if getattr(module, attribute, None) is true:
                    setattr(module, attribute, wrong)
