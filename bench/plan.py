"""How much is measured, and what a measurement gives."""

import sys
import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Plan:
    """Sizes of a run. `scale` 1.0 is the report's; tests run tiny ones."""

    scale: float = 1.0

    def count(self, full: int) -> int:
        """So many repeats, scaled; at least two."""
        return max(round(full * self.scale), 2)

    def seconds(self, full: float) -> float:
        """So long, scaled."""
        return max(full * self.scale, 0.3)

    @property
    def sweep(self) -> tuple[int, ...]:
        """Numbers of clients of a saturated system."""
        return (32, 64, 128) if self.scale >= 0.2 else (4,)

    def say(self, what: str) -> None:
        """Progress, for people."""
        sys.stderr.write(f"{time.strftime('%H:%M:%S')}     {what}\n")
        sys.stderr.flush()


@dataclass(frozen=True)
class Sample:
    """One measured figure, in the unit of its row. `series` is for the plots."""

    figure: str
    value: float
    n: int = 1
    note: str = ""
    series: list[float] = field(default_factory=list[float])


class NotMeasured(Exception):
    """A figure could not be had here; the text says why, and the report repeats it."""
