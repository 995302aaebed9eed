"""The public log of ordinary turns, entry by entry."""

from counterfoil.ledger.v1 import session_pb2, turn_pb2

from tests.services.ledger.turns.driver import Ledger, reason_of
from tests.services.ledger.turns.events import (
    ALLOW,
    ASK,
    CUSTOM,
    PLATFORM,
    confirm,
    custom_result,
    message,
    system,
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


async def test_two_custom_calls_answered_one_after_the_other(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        answer = await turn.ask((CUSTOM, ALLOW), (CUSTOM, ALLOW), commit=PARK)
        assert answer.answer == turn_pb2.COMMIT_ANSWER_PARKED
        parked = await ledger.position
        assert (await ledger.types())[-7:] == [
            "span.model_request_start",
            "agent.custom_tool_use",
            "agent.custom_tool_use",
            "span.model_request_end",
            "session.thread_status_idle",
            "session.usage",
            "session.status_idle requires_action 2",
        ]
        idle = (await ledger.log())[-1]
        first, second = turn.calls
        assert idle["stop_reason"]["event_ids"] == [first.use_event_id, second.use_event_id]

        [echo] = await ledger.send(custom_result(first, "one"))
        assert echo["processed_at"] is not None
        assert await ledger.types(parked) == [
            "user.custom_tool_result",
            "session.thread_status_idle",
            "session.usage",
            "session.status_idle requires_action 1",
        ]
        assert (await ledger.log())[-1]["stop_reason"]["event_ids"] == [second.use_event_id]

        partial = await ledger.position
        await ledger.send(custom_result(second, "two"))
        resumed = await runner.claimed()
        assert await ledger.types(partial) == [
            "user.custom_tool_result",
            "session.thread_status_running",
            "session.status_running",
        ]
        claim = resumed.claim
        assert (claim.turn_id, claim.epoch, claim.takeover) == (turn.id, 2, False)
        assert (claim.round, claim.rounds_used) == (0, 1)
        assert [b"one" in call.answer_body for call in claim.calls] == [True, False]
        assert [call.state for call in claim.calls] == [turn_pb2.CALL_STATE_ANSWERED] * 2
        assert all(len(call.answered_at.digest) == 32 for call in claim.calls)
        assert claim.transcript_head.seq == 2
        resumed.calls = turn.calls
        done = await resumed.say("thanks", entries=[resumed.results()])
        assert done.answer == turn_pb2.COMMIT_ANSWER_DONE
    assert (await ledger.types())[-1] == "session.status_idle end_turn"


async def test_answers_before_parking_publish_no_idle(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.ask((CUSTOM, ALLOW), (PLATFORM, ASK))
        custom, asked = turn.calls
        before = await ledger.position
        await ledger.send(custom_result(custom), system("be quick"))
        await ledger.send(confirm(asked))
        assert await ledger.types(before) == [
            "user.custom_tool_result",
            "system.message?",
            "user.tool_confirmation?",
        ]
        answer = await turn.commit(PARK)
        assert answer.answer == CONTINUE
        assert [bool(call.answer_body) for call in answer.calls] == [True, True]
        assert [b"be quick" in body for body in answer.answer_system_bodies] == [True]
        assert (await ledger.types(before))[3:] == ["system.message", "user.tool_confirmation"]
        again = await turn.commit(PARK)
        assert (again.answer, len(again.calls)) == (CONTINUE, 2)
        await turn.progress(asked)
        await turn.say("done", entries=[turn.results()])
    assert not any("requires_action" in line for line in await ledger.types())


async def test_a_confirmation_is_marked_when_its_turn_resumes(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.ask((PLATFORM, ASK), commit=PARK)
        parked = await ledger.position
        await ledger.send(confirm(turn.calls[0], deny="too dear"))
        resumed = await runner.claimed()
        assert await ledger.types(parked) == [
            "user.tool_confirmation?",
            "session.thread_status_running",
            "session.status_running",
            "user.tool_confirmation",
        ]
        assert b"too dear" in resumed.claim.calls[0].answer_body
        resumed.calls = turn.calls
        await resumed.progress(*turn.calls, text="denied", is_error=True)
        await resumed.say("then not", entries=[resumed.results()])


async def test_queued_messages_run_in_order_without_an_idle_between(ledger: Ledger) -> None:
    await ledger.create()
    async with ledger.runner(capacity=1) as runner:
        sent = await ledger.send(message("one"), message("two"), system("and be brief"))
        first = await runner.claimed()
        await first.say("1")
        second = await runner.claimed()
        assert second.claim.input.event_id == sent[1]["id"]
        assert second.claim.input.system_event_id == sent[2]["id"]
        assert b"brief" in second.claim.input.system_body
        await second.say("2", entries=[second.entry(turn_pb2.ENTRY_KIND_INPUT)])
    types = await ledger.types()
    assert types[:6] == [
        "user.message?",
        "user.message?",
        "system.message?",
        "session.thread_status_running",
        "session.status_running",
        "user.message",
    ]
    assert types[9:11] == ["user.message", "system.message"]
    assert types.count("session.status_running") == 1
    assert [line for line in types if "idle" in line] == [
        "session.thread_status_idle",
        "session.status_idle end_turn",
    ]


async def test_a_platform_call_runs_before_its_round_parks(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.ask((PLATFORM, ALLOW), (CUSTOM, ALLOW))
        platform, custom = turn.calls
        assert await reason_of(turn.commit(PARK)) == "GAP"
        await turn.progress(platform)
        assert (await turn.commit(PARK)).answer == turn_pb2.COMMIT_ANSWER_PARKED
        await ledger.send(custom_result(custom))
        resumed = await runner.claimed()
        assert [call.result_event_id != "" for call in resumed.claim.calls] == [True, True]


async def test_the_idle_vouches_for_the_transcript(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.say("hi")
    request = turn_pb2.VerifyLogRequest(session_id=ledger.thread.session_id)
    verified = await ledger.turns.VerifyLog(request, None)
    assert not verified.findings
    assert [vouch.head.seq for vouch in verified.vouches] == [2]
