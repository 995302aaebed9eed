"""What follows an answer is decided by one table, and counted from stored entries."""

import json
from typing import Any

import pytest
from counterfoil.transcript.v1 import transcript_pb2

from services.runner import answer, stops
from services.runner.stops import Then, after_answer, after_results, row_before
from services.runner.turn import ANSWER, RESULTS

TABLE = [
    # stop reason, without calls, after the results of calls
    ("end_turn", Then.END, Then.ASK),
    ("stop_sequence", Then.END, Then.ASK),
    ("tool_use", Then.END, Then.ASK),
    ("pause_turn", Then.ASK, Then.ASK),
    ("max_tokens", Then.CONTINUE, Then.ASK),
    ("refusal", Then.END_REFUSED, Then.END_REFUSED),
    ("model_context_window_exceeded", Then.FAIL_FULL, Then.FAIL_FULL),
    ("never_heard_of", Then.END, Then.ASK),
    ("", Then.END, Then.ASK),
]


@pytest.mark.parametrize(("stop_reason", "alone", "behind"), TABLE, ids=[r[0] for r in TABLE])
def test_the_table(stop_reason: str, alone: Then, behind: Then) -> None:
    assert after_answer(stop_reason, has_calls=False) is alone
    assert after_answer(stop_reason, has_calls=True) is Then.RESULTS
    assert after_results(stop_reason) is behind


ROWS = [
    ("pause_turn", ["pause_turn"] * 4, Then.ASK),
    ("pause_turn", ["pause_turn"] * 5, Then.FAIL_PAUSED),
    ("pause_turn", ["max_tokens"] * 3, Then.ASK),
    ("max_tokens", ["max_tokens"] * 2, Then.CONTINUE),
    ("max_tokens", ["max_tokens"] * 3, Then.FAIL_CUT),
    ("max_tokens", ["pause_turn"] * 5, Then.CONTINUE),
    ("end_turn", ["pause_turn"] * 5, Then.END),
]


@pytest.mark.parametrize(("stop_reason", "row", "then"), ROWS)
def test_each_kind_of_continuation_is_bounded(stop_reason: str, row: list[str], then: Then) -> None:
    assert after_answer(stop_reason, has_calls=False, row=row) is then
    assert after_answer(stop_reason, has_calls=True, row=row) is Then.RESULTS


def entry(round_: int, stop_reason: str, *blocks: bytes) -> transcript_pb2.Entry:
    envelope = json.dumps({"stop_reason": stop_reason}).encode()
    content = transcript_pb2.EntryContent(blocks=blocks, envelope=envelope)
    return transcript_pb2.Entry(round=round_, kind=ANSWER, content=content)


def test_a_row_ends_at_calls_and_where_the_entries_do() -> None:
    use = b'{"type":"tool_use","id":"t","name":"n","input":{}}'
    answers = [
        entry(3, "pause_turn"),
        entry(4, "pause_turn", use),
        entry(5, "max_tokens"),
        entry(6, "pause_turn"),
        entry(7, "end_turn"),
    ]
    entries: dict[Any, transcript_pb2.Entry] = {(e.round, ANSWER): e for e in answers}
    entries[4, RESULTS] = transcript_pb2.Entry(round=4, kind=RESULTS)
    found = {round_: row_before(entries, round_) for round_ in range(3, 9)}
    assert found == {
        3: [],
        4: ["pause_turn"],
        5: [],
        6: ["max_tokens"],
        7: ["pause_turn", "max_tokens"],
        8: [],
    }


DETAILS = [
    ('{"type":"refusal","category":"cyber","explanation":"No."}', "cyber", "No."),
    ('{"type":"refusal","category":null,"explanation":null}', None, None),
    ('{"category":7,"explanation":{}}', None, None),
    ("null", None, None),
    ('"text"', None, None),
]


@pytest.mark.parametrize(("raw", "category", "explanation"), DETAILS)
def test_stop_details_are_read_as_far_as_they_are_what_they_should_be(
    raw: str, category: str | None, explanation: str | None
) -> None:
    for envelope in (f'{{"stop_reason":"refusal","stop_details":{raw}}}', "{}"):
        found = answer.stop_details_of(envelope.encode())
        wanted = (category, explanation) if "stop_details" in envelope else (None, None)
        assert found.type == "refusal"
        assert (
            tuple(
                getattr(found, name) if found.HasField(name) else None
                for name in ("category", "explanation")
            )
            == wanted
        )


def test_the_limits_are_the_protocols() -> None:
    assert (stops.PAUSES_MAX, stops.CUTS_MAX) == (5, 3)
