"""What the doctor finds, and how it judges what it measured. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

VERSION_MIN, VERSION_END = (3, 11), (3, 13)
DISK_BYTES_LOW = 1 << 30
DISK_BYTES_FULL = 100 << 20
CLOCK_SECONDS_MAX = 5.0

_PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*])?==([^\s;\\]+)\s*(;)?")


class State(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Finding:
    """One check: what was looked at, what was found, and what to do about it."""

    check: str
    state: State
    found: str
    advice: str = ""


def ok(check: str, found: str) -> Finding:
    """It is as it should be."""
    return Finding(check, State.OK, found)


def failed(check: str, found: str, advice: str) -> Finding:
    """It cannot work like this."""
    return Finding(check, State.FAILED, found, advice)


def warning(check: str, found: str, advice: str) -> Finding:
    """It works, and somebody should know."""
    return Finding(check, State.WARNING, found, advice)


def skipped(check: str, found: str, advice: str = "") -> Finding:
    """It cannot be looked at now."""
    return Finding(check, State.SKIPPED, found, advice)


def python(version: tuple[int, int]) -> Finding:
    """Whether this Python is one that we are tested with."""
    shown = ".".join(map(str, version))
    if VERSION_MIN <= version < VERSION_END:
        return ok("Python", shown)
    return failed("Python", shown, "Install Python 3.11 or 3.12, remove .venv, and run make run.")


def packages(lock: Iterable[str], installed: Mapping[str, str]) -> Finding:
    """Whether what is installed is what the lock pins. `installed` has normalised names."""
    wrong: list[str] = []
    pins = 0
    for line in lock:
        match = _PIN.match(line)
        if match is None:
            continue
        name, wanted, conditional = normalised(match[1]), match[2], match[3]
        found = installed.get(name)
        if found is None and conditional:
            continue
        pins += 1
        if found != wanted:
            wrong.append(f"{name} {found or 'is missing'} instead of {wanted}")
    if not wrong:
        return ok("packages", f"{pins} as locked")
    more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    return failed("packages", ", ".join(wrong[:3]) + more, "Remove .venv and run make run.")


def normalised(name: str) -> str:
    """The one spelling of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def disk(free_bytes: int, path: str) -> Finding:
    """Whether there is room to go on writing."""
    found = f"{free_bytes / (1 << 30):.1f} GiB free at {path}"
    advice = "Make room, or move the data folder: a full disk refuses every write."
    if free_bytes < DISK_BYTES_FULL:
        return failed("disk", found, advice)
    return warning("disk", found, advice) if free_bytes < DISK_BYTES_LOW else ok("disk", found)


def clock(offsets: Mapping[str, float]) -> Finding:
    """Whether our clock agrees with others; `offsets` are seconds that they are ahead."""
    if not offsets:
        return skipped("clock", "nothing to compare with")
    worst = max(offsets, key=lambda name: abs(offsets[name]))
    seconds = offsets[worst]
    found = f"{abs(seconds):.1f} s {'behind' if seconds > 0 else 'ahead of'} {worst}"
    if abs(seconds) <= CLOCK_SECONDS_MAX:
        return ok("clock", found)
    advice = "Synchronise the clocks (NTP): retries and deadlines are times of day."
    return warning("clock", found, advice)


def migrations(service: str, current: str | None, head: str, *, embedded: bool) -> Finding:
    """Whether a service's schema is the one that this version needs."""
    check = f"schema of {service}"
    if current == head:
        return ok(check, head)
    advice = "Run counterfoil run again: it migrates." if embedded else "Run counterfoil migrate."
    return failed(check, f"{current or 'none'} instead of {head}", advice)
