"""What must hold after the soak. Pure: it compares what clients saw with what history says."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from tests.soak.readers import Frame

GROWTH_MAX = 0.25
"""By how much of itself a process may have grown between the first and the last third of its life,
beyond the allowance: events in caches, not a leak with every one of them."""

ALLOWANCE_BYTES = 24_000_000

_SAMPLES_MIN = 9


@dataclass(frozen=True)
class Promised:
    """What the clients of one session were told, or told the model."""

    accepted: Sequence[str]
    answers: Sequence[str]


def wrong_inputs(promised: Promised, history: Sequence[dict[str, Any]]) -> Iterable[str]:
    """Every acknowledged input is there once, and no other."""
    found = Counter(event["id"] for event in history if event["type"].startswith("user."))
    yield from (f"input {id} is lost" for id in promised.accepted if not found[id])
    yield from (f"input {id} is doubled" for id, times in found.items() if times > 1)
    more = set(found) - set(promised.accepted)
    yield from (f"input {id} was never acknowledged: another one's double" for id in more)


def wrong_answers(promised: Promised, history: Sequence[dict[str, Any]]) -> Iterable[str]:
    """Every turn has its one final answer."""
    said = Counter(
        event["content"][0]["text"] for event in history if event["type"] == "agent.message"
    )
    for answer in promised.answers:
        if said[answer] != 1:
            yield f"the turn of {answer!r} has {said[answer]} final answers"


def wrong_stream(frames: Sequence[Frame], history: Sequence[dict[str, Any]]) -> Iterable[str]:
    """A reader saw all of history once, and besides only how its input was queued."""
    back = [pair for pair in pairwise(frames) if pair[0].position >= pair[1].position]
    yield from (f"position {b.position} came after {a.position}" for a, b in back)
    seen = Counter(frame.id for frame in frames if not frame.queued)
    queued = Counter(frame.id for frame in frames if frame.queued)
    listed = {event["id"]: event["type"] for event in history}
    yield from (f"{listed[id]} {id} was not streamed" for id in listed if not seen[id])
    yield from (f"{id} was streamed and is not listed" for id in seen if id not in listed)
    yield from (f"{id} was streamed {times} times" for id, times in seen.items() if times > 1)
    for id, times in queued.items():
        if times > 1 or not listed.get(id, "").startswith("user."):
            yield f"{id} was streamed as queued {times} times"


def grown(resident: Sequence[int]) -> str | None:
    """What is wrong with a process of these resident sizes, sampled evenly over its life."""
    if len(resident) < _SAMPLES_MIN:
        return None
    third = len(resident) // 3
    before, after = fmean(resident[:third]), fmean(resident[-third:])
    if after <= before * (1 + GROWTH_MAX) + ALLOWANCE_BYTES:
        return None
    return f"grew from {before / 1e6:.0f} to {after / 1e6:.0f} MB"
