"""What archiving does in each state of a session, and which of its turns still run. Pure."""

from datetime import UTC, datetime, timedelta

import pytest
from counterfoil.ledger.v1 import session_pb2, turn_pb2

from services.ledger import archive, claiming
from services.ledger.lane import TAKEOVERS_MAX, Call, Ended, Lane, Session, Thread, Turn
from services.ledger.log_writer import LogHead
from tests.services.ledger.turns.events import ALLOW, ASK, CUSTOM, PLATFORM

DONE = turn_pb2.TURN_STATE_DONE
IDLE = session_pb2.SESSION_STATUS_IDLE
PARKED = turn_pb2.TURN_STATE_PARKED
QUARANTINED = turn_pb2.TURN_STATE_QUARANTINED
QUEUED = turn_pb2.TURN_STATE_QUEUED
RESCHEDULING = turn_pb2.TURN_STATE_RESCHEDULING
SETTLING = turn_pb2.TURN_STATE_SETTLING
NOW = datetime(2026, 1, 1, tzinfo=UTC)
TERMINATED = ["session.thread_status_terminated", "session.status_terminated"]


def lane_of(*turns: Turn) -> Lane:
    session = Session("w", "s", "t", "clerk", IDLE, 0, 0, 0, 0, 0, None, None)
    thread = Thread(3, False, None, Ended.COMMITTED, 0, b"", None)
    return Lane(session, thread, LogHead(), list(turns), NOW)


def turn(state: "turn_pb2.TurnState.ValueType", position: int = 1) -> Turn:
    return Turn(f"turn_{position}", position, f"sevt_{position}", state, marked=True, round=0)


def call(place: int, owner: int, policy: int) -> Call:
    return Call(
        "turn_1", 0, place, place, f"use_{place}", f"op_{place}", owner, policy, "x",  # type: ignore[arg-type]
        turn_pb2.CALL_STATE_OPEN,
    )  # fmt: skip


def types(lane: Lane) -> list[str]:
    return [draft.event_type for draft in lane.drafts]


def test_a_session_without_turns_just_ends() -> None:
    lane = lane_of()
    archive.archive(lane)
    assert types(lane) == TERMINATED
    assert lane.terminated
    assert lane.thread.claimable_at is None


def test_the_calls_of_a_parked_turn_are_closed() -> None:
    lane = lane_of(turn(PARKED))
    lane.turns[0].round_open = True
    lane.calls = [call(0, CUSTOM, ALLOW), call(1, PLATFORM, ASK)]
    archive.archive(lane)
    assert types(lane) == ["user.custom_tool_result", "agent.tool_result", *TERMINATED]
    assert all(b'"is_error":true' in draft.body for draft in lane.drafts[:2])
    assert [one.state for one in lane.calls] == [turn_pb2.CALL_STATE_CLOSED] * 2
    assert (lane.turns[0].state, lane.turns[0].released) == (SETTLING, True)


def test_a_retry_is_cancelled() -> None:
    lane = lane_of(turn(RESCHEDULING))
    lane.session.status = session_pb2.SESSION_STATUS_RESCHEDULING
    lane.turns[0].not_before = NOW + timedelta(hours=1)
    archive.archive(lane)
    assert types(lane) == TERMINATED
    assert lane.turns[0].state == SETTLING
    assert lane.thread.claimable_at == NOW


@pytest.mark.parametrize("state", [PARKED, SETTLING, RESCHEDULING])
def test_what_is_left_is_settled_in_silence(state: "turn_pb2.TurnState.ValueType") -> None:
    lane = lane_of(turn(state))
    archive.archive(lane)
    published = len(lane.drafts)
    assert claiming.claimable(lane)
    assert claiming.claim(lane, "stream") is False
    assert lane.turns[0].state == SETTLING
    assert len(lane.drafts) == published
    assert lane.terminated


def test_what_its_runner_left_unsettled_is_claimed_again_until_it_is_given_up() -> None:
    lane = lane_of(turn(PARKED))
    archive.archive(lane)
    published = len(lane.drafts)
    for attempt in range(TAKEOVERS_MAX + 1):
        assert claiming.claim(lane, "stream") is (attempt > 0)
        lane.thread.lease_stream = None  # it expired, or its stream was lost
        assert claiming.claimable(lane)
    assert claiming.claim(lane, "stream") is None
    assert lane.turns[0].state == QUARANTINED
    assert lane.thread.claimable_at is None
    assert len(lane.drafts) == published


def test_a_settlement_that_found_no_authority_waits_for_its_next_attempt() -> None:
    lane = lane_of(turn(PARKED))
    archive.archive(lane)
    claiming.claim(lane, "stream")
    assert claiming.release(lane, lane.thread.epoch, turn_pb2.RELEASE_REASON_UNAVAILABLE)
    assert lane.thread.claimable_at is not None
    assert lane.thread.claimable_at > NOW
    assert lane.turns[0].takeovers == 0


def test_a_quarantined_turn_stays_with_its_operator() -> None:
    lane = lane_of(turn(QUARANTINED))
    archive.archive(lane)
    assert lane.turns[0].state == QUARANTINED
    assert lane.thread.claimable_at is None


def test_queued_input_never_runs_and_is_never_marked() -> None:
    waiting = Turn("turn_2", 2, "sevt_2", QUEUED)
    lane = lane_of(turn(PARKED), waiting)
    archive.archive(lane)
    assert types(lane) == TERMINATED
    assert waiting.state == DONE
    assert lane.waiting is None
    assert lane.finished == [waiting]
