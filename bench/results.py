"""A run's results as they are kept in `results.json`."""

from pathlib import Path
from typing import Any

import msgspec

from bench.plan import Sample


class Results(msgspec.Struct):
    """Everything that one run found."""

    machine: dict[str, str]
    rows: list[str]
    scale: float
    floors: dict[str, float] = {}
    postgres: dict[str, str] = {}
    samples: list[Sample] = []
    missing: dict[str, str] = {}
    """Rows that could not be had, and why."""
    failed: dict[str, str] = {}
    """Rows whose measurement broke."""
    seconds: float = 0.0

    def save(self, path: Path) -> None:
        """Writes the file."""
        raw: Any = msgspec.to_builtins(self)
        for sample in raw["samples"]:
            sample["series"] = [round(value, 4) for value in sample["series"]]
        path.write_bytes(msgspec.json.format(msgspec.json.encode(raw), indent=1) + b"\n")

    @classmethod
    def load(cls, path: Path) -> "Results":
        """Reads the file. Raises msgspec.ValidationError."""
        return msgspec.json.decode(path.read_bytes(), type=cls)
