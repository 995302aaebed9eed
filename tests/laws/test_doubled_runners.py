"""Two and three real runners on one thread, over the real services and a real PostgreSQL.

Schedules are drawn: in which order calls and answers arrive, what is lost, late or doubled, who is
paused, is killed or loses its lease, and what clients say meanwhile. Only the provider and time are
scripted. In the end everything arrives and is answered; then it must hold what the protocol's
executable model checks behind its schedules. The model does not run beside it: `doubled/checks.py`
derives the same expectations from what is left (transcript, journal, public log, requests,
executions, previews).

Each mutant removes one rule of the protocol, and schedules must find that out.
"""

import re
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings

from tests.laws.doubled import mutants, public_log
from tests.laws.doubled.public_log import Json, PublicLog
from tests.laws.doubled.schedule import Schedule, schedules
from tests.laws.doubled.theatre import Theatre, open_theatre

_EXAMPLES = 60
_EXAMPLES_NEW = 20
_EXAMPLES_FULL = 600
"""With twice as many the whole long suite took 31 minutes in a slow hour of the host; it has 30."""
_EXAMPLES_OF_MUTANT_MAX = 150

_COMMON = settings(
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    report_multiple_bugs=False,
)


@pytest.fixture(scope="module")
def theatre() -> Generator[Theatre]:
    with open_theatre() as opened:
        yield opened


def _holds(theatre: Theatre, schedule: Schedule) -> None:
    played = theatre.play(schedule)
    note("\n".join(played.trace))
    assert not played.wrong, played.wrong


@pytest.mark.timeout(900)
@settings(_COMMON, max_examples=_EXAMPLES, derandomize=True)
@given(schedules())
def test_known_schedules_leave_one_history(theatre: Theatre, schedule: Schedule) -> None:
    _holds(theatre, schedule)


@pytest.mark.timeout(900)
@settings(_COMMON, max_examples=_EXAMPLES_NEW)
@given(schedules())
def test_new_schedules_leave_one_history(theatre: Theatre, schedule: Schedule) -> None:
    _holds(theatre, schedule)


@pytest.mark.full
@pytest.mark.timeout(1800)
@settings(_COMMON, max_examples=_EXAMPLES_FULL)
@given(schedules())
def test_many_schedules_leave_one_history(theatre: Theatre, schedule: Schedule) -> None:
    _holds(theatre, schedule)


def test_without_faults_nothing_is_repeated(theatre: Theatre) -> None:
    for seed in range(5):
        played = theatre.play(Schedule(seed, "everything", 3, ()))
        assert not played.wrong, played.wrong
        assert not [line for line in played.trace if "takeover" in line or "FENCED" in line]


def test_a_request_that_is_refused_as_too_large_leaves_one_summary(theatre: Theatre) -> None:
    refused = 0
    for seed in range(4):
        played = theatre.play(Schedule.of(seed, theme="overflows"))
        assert not played.wrong, played.wrong
        refused += len([line for line in played.trace if "provider refuses" in line])
    assert refused


def test_a_log_with_a_missing_or_doubled_status_is_noticed(theatre: Theatre) -> None:
    played = theatre.play(Schedule.of(2, theme="closing"))
    assert not played.wrong, played.wrong
    assert not list(public_log.complaints(played.log))
    noticed: set[str] = set()
    entries, ends = played.log.entries, played.log.ends
    for place, (position, event) in enumerate(entries):
        if event["type"] in _STATUSES and not _asks(event):
            noticed.add(event["type"])
            before, behind = entries[:place], entries[place + 1 :]
            for changed in (
                [*before, *behind],
                [*before, (position, event), (position, event), *behind],
            ):
                assert list(public_log.complaints(PublicLog(changed, ends))), event
    assert noticed == _STATUSES


def _session_of_two_turns(*, ends: list[int]) -> PublicLog:
    """Message 2 comes behind the last event of turn 1, which goes over into it without an idle."""
    events = [
        ("user.message", {"id": "m1", "processed_at": None}),
        ("session.status_running", {}),
        ("user.message", {"id": "m1"}),
        ("span.model_request_start", {"id": "s1"}),
        ("agent.message", {}),
        ("span.model_request_end", {"model_request_start_id": "s1"}),
        ("user.message", {"id": "m2", "processed_at": None}),
        ("user.message", {"id": "m2"}),
        ("span.model_request_start", {"id": "s2"}),
        ("agent.message", {}),
        ("span.model_request_end", {"model_request_start_id": "s2"}),
        ("session.status_idle", {"stop_reason": {"type": "end_turn"}}),
    ]
    entries: list[tuple[int, Json]] = [
        (position, {"type": kind, "processed_at": "now", **members})
        for position, (kind, members) in enumerate(events, 1)
    ]
    return PublicLog(entries, ends)


@pytest.mark.parametrize(
    ("ends", "holds"),
    [
        ([7, 12], True),
        ([6, 12], False),  # nothing waited yet: turn 1 owed an idle
        ([12], False),
        ([], False),
    ],
)
def test_a_turn_leaves_no_idle_only_if_input_waited_at_its_end(
    ends: list[int], holds: bool
) -> None:
    found = list(public_log.complaints(_session_of_two_turns(ends=ends)))
    assert found == ([] if holds else ["turn 1 ended by itself with 0 final idles"])


_STATUSES = {"session.status_running", "session.status_idle", "span.model_request_end"}


def _asks(event: Json) -> bool:
    """An idle that waits for answers; it comes again with every one of several answers."""
    return event.get("stop_reason", {}).get("type") == "requires_action"


Mutant = Callable[[], AbstractContextManager[None]]


def _is_caught(theatre: Theatre, mutant: Mutant, theme: str, complaint: str) -> None:
    """Some schedule must fail, and for the reason that the removed rule prevents."""
    others: list[str] = []
    for seed in range(_EXAMPLES_OF_MUTANT_MAX):
        with mutant():
            played = theatre.play(Schedule.of(seed, theme=theme))
        if any(re.search(complaint, wrong) for wrong in played.wrong):
            return
        others += played.wrong[:1]
    pytest.fail(f"{_EXAMPLES_OF_MUTANT_MAX} schedules did not notice; they noticed {others[:5]}")


def test_mutant_no_fence_is_caught(theatre: Theatre) -> None:
    stray = "answers in the transcript|ABANDONED|inputs in the transcript"
    _is_caught(theatre, mutants.no_fence, "writes", stray)


def test_mutant_unanswered_writes_are_caught(theatre: Theatre) -> None:
    stray = "answers in the transcript|ABANDONED"
    _is_caught(theatre, mutants.unanswered_writes_are_passed_over, "writes", stray)


def test_mutant_attempt_left_out_of_ids_is_caught(theatre: Theatre) -> None:
    clash = "was not started under this nonce|is listed 2 times|two texts|OPERATION_REFUSED"
    _is_caught(theatre, mutants.attempt_left_out_of_ids, "writes", clash)


@pytest.mark.parametrize("mutant", [mutants.any_nonce_starts, mutants.derived_nonce])
def test_mutant_nonce_is_caught(theatre: Theatre, mutant: Mutant) -> None:
    _is_caught(theatre, mutant, "executors", "was executed 2 times")


def test_mutant_close_skipped_is_caught(theatre: Theatre) -> None:
    unasked = "the journal holds another result|has no projection|was changed|was executed, and is"
    _is_caught(theatre, mutants.close_skipped, "closing", unasked)


def test_mutant_kept_answers_dropped_is_caught(theatre: Theatre) -> None:
    _is_caught(theatre, mutants.kept_answers_dropped, "closing", "model .* public ")


def test_mutant_publish_before_commit_is_caught(theatre: Theatre) -> None:
    unpublished = "GAP|has no public result|answers in the transcript"
    _is_caught(theatre, mutants.commits_unpublished, "closing", unpublished)
