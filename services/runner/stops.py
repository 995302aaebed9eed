"""What follows an answer, by its stop reason: the one table. Pure.

No stop reason ends a session. What an answer holds counts more than what it says of itself, so an
answer with tool calls is always followed by their results:

| stop reason                     | without calls                 | with calls                     |
|---------------------------------|-------------------------------|--------------------------------|
| `end_turn`, `stop_sequence`     | the turn ends                 | refused, then asked again      |
| `tool_use`                      | the turn ends                 | results, then asked again      |
| `pause_turn`                    | asked again as it is, 5 times | results, then asked again      |
| `max_tokens`                    | "continue", 3 times           | the same, the last one refused |
| `refusal`                       | ends as refused               | refused, then ends as refused  |
| `model_context_window_exceeded` | withheld, ends with an error  | refused, then the same         |
| unknown or missing              | the turn ends                 | results, then asked again      |

A refused call gets an error result that tells the model why (`answer.judge`). Continuations are
counted by their stop reason in a row of answers without calls; after the last one the turn ends
with an error, because an answer that is not complete must not look like one that is.
"""

from collections.abc import Mapping, Sequence
from enum import Enum, auto

from counterfoil.transcript.v1 import transcript_pb2

from services.runner import answer as answers
from services.runner.turn import ANSWER, Kind

PAUSES_MAX = 5
"""Continuations of paused answers in a row."""

CUTS_MAX = 3
"""Continuations of cut-off answers in a row."""


class Then(Enum):
    """What the owner does next."""

    END = auto()
    """The turn is over."""
    END_REFUSED = auto()
    """The turn is over, and the public stop reason is the refusal."""
    RESULTS = auto()
    """The calls get results; `after_results` says what follows them."""
    ASK = auto()
    """A new round with the history as it is."""
    CONTINUE = auto()
    """The host's word "continue" enters the history; then a new round."""
    FAIL_PAUSED = auto()
    """The turn ends with an error: paused too often."""
    FAIL_CUT = auto()
    """The turn ends with an error: cut off too often."""
    FAIL_FULL = auto()
    """The turn is taken out of the history, which no request could hold, and ends with an error."""


def after_answer(stop_reason: str, *, has_calls: bool, row: Sequence[str] = ()) -> Then:
    """What follows an answer; `row` are the stop reasons of the continued answers before it."""
    if has_calls:
        return Then.RESULTS
    match stop_reason:
        case answers.PAUSED:
            return Then.ASK if row.count(answers.PAUSED) < PAUSES_MAX else Then.FAIL_PAUSED
        case answers.CUT:
            return Then.CONTINUE if row.count(answers.CUT) < CUTS_MAX else Then.FAIL_CUT
        case _:
            return _ENDS.get(stop_reason, Then.END)


def after_results(stop_reason: str) -> Then:
    """What follows the results of an answer's calls."""
    return _ENDS.get(stop_reason, Then.ASK)


_ENDS = {answers.REFUSED: Then.END_REFUSED, answers.WINDOW_FULL: Then.FAIL_FULL}
"""Stop reasons that end a turn with or without calls."""


def row_before(
    entries: Mapping[tuple[int, "Kind.ValueType"], transcript_pb2.Entry], round_: int
) -> list[str]:
    """Stop reasons of the answers that were continued, one after the other, up to this round.

    Results end a row. So every owner counts the same: one that takes over has all entries of the
    turn, and one that resumes after parking begins behind results.
    """
    row: list[str] = []
    while (entry := entries.get((round_ - 1, ANSWER))) is not None:
        stop_reason = answers.stop_reason_of(entry.content.envelope)
        goes_on = stop_reason in (answers.PAUSED, answers.CUT)
        if not goes_on or answers.calls_of(entry.content.blocks):
            break
        row.append(stop_reason)
        round_ -= 1
    return row
