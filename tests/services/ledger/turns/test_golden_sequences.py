"""The public log of ordinary turns, entry by entry."""

from counterfoil.ledger.v1 import session_pb2, turn_pb2

from tests.services.ledger.turns.driver import (
    Ledger,
    message,
)

CONTINUE = turn_pb2.COMMIT_ANSWER_CONTINUE
PARK = turn_pb2.COMMIT_KIND_PARKED
ONE_TURN = [
    "user.message?",
    "session.thread_status_running",
    "session.status_running",
    "user.message",
    "span.model_request_start",
    "agent.message",
    "span.model_request_end",
    "session.thread_status_idle",
    "session.usage",
    "session.status_idle end_turn",
]


async def test_a_plain_text_turn(ledger: Ledger) -> None:
    await ledger.create()
    async with ledger.runner() as runner:
        [echo] = await ledger.send(message("hello"))
        assert echo["processed_at"] is None
        turn = await runner.claimed()
        assert not turn.claim.takeover
        assert turn.claim.input.event_id == echo["id"]
        assert b'"hello"' in turn.claim.input.body
        assert turn.claim.runtime.system == "be kind"
        assert (await ledger.get()).status == session_pb2.SESSION_STATUS_RUNNING
        response = await turn.say("hi")
        assert response.answer == turn_pb2.COMMIT_ANSWER_DONE
    assert await ledger.types() == ONE_TURN
    session = await ledger.get()
    assert session.status == session_pb2.SESSION_STATUS_IDLE
    assert (session.usage.input_tokens, session.usage.output_tokens) == (10, 5)
    assert (session.title, dict(session.metadata)) == ("Trip", {"trip": "7"})
