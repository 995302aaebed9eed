"""Interrupts: one row of the protocol's table after the other, and both orders against a commit."""

import pytest
from counterfoil.ledger.v1 import turn_pb2

from foundation.outcomes import NOT_RUN_TEXT
from tests.services.ledger.turns.driver import Ledger, reason_of
from tests.services.ledger.turns.events import (
    ALLOW,
    ASK,
    CUSTOM,
    PLATFORM,
    confirm,
    custom_result,
    interrupt,
    message,
    system,
)

PARK = turn_pb2.COMMIT_KIND_PARKED
DONE = turn_pb2.COMMIT_KIND_DONE
CLOSE = turn_pb2.COMMIT_KIND_INTERRUPTED
SETTLE = turn_pb2.COMMIT_KIND_SETTLED
INTERRUPTED = turn_pb2.COMMIT_ANSWER_INTERRUPTED
IDLE = ["session.thread_status_idle", "session.usage", "session.status_idle end_turn"]
RUN = ["session.thread_status_running", "session.status_running"]


async def test_with_nothing_to_stop_it_is_accepted_and_marked(ledger: Ledger) -> None:
    await ledger.create()
    [echo] = await ledger.send(interrupt())
    assert echo["processed_at"] is not None
    assert await ledger.types() == ["user.interrupt"]


async def test_a_queued_turn_ends_without_a_request(ledger: Ledger) -> None:
    await ledger.create("go")
    await ledger.send(interrupt(ledger.thread.thread_id))
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        assert turn.claim.interrupted
        assert (await turn.begin()).interrupted
        assert (await turn.commit(DONE)).answer == INTERRUPTED
        await turn.commit(CLOSE, turn.entry(turn_pb2.ENTRY_KIND_INPUT))
    assert await ledger.types() == [
        "user.message?", *RUN, "user.interrupt?", "user.message", "user.interrupt", *IDLE
    ]  # fmt: skip


async def test_a_running_request_is_told_and_closed(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.begin()
        before = await ledger.position
        await ledger.send(interrupt())
        notice = (await runner.receive()).interrupt
        assert (notice.turn_id, notice.claim.epoch) == (turn.id, 1)
        await ledger.send(interrupt())  # a second one changes nothing
        closed = await turn.commit(CLOSE, turn.entry(turn_pb2.ENTRY_KIND_INPUT))
        assert closed.answer == turn_pb2.COMMIT_ANSWER_DONE
        assert await ledger.types(before) == [
            "user.interrupt?", "user.interrupt", "span.model_request_end", "user.interrupt", *IDLE
        ]  # fmt: skip
        again = await turn.commit(CLOSE)
        assert (again.answer, again.position) == (closed.answer, closed.position)


async def test_a_round_that_comes_after_it_is_published_with_closed_actions(
    ledger: Ledger,
) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.begin()
        await ledger.send(interrupt())
        await runner.receive()
        request = turn.answer((CUSTOM, ALLOW), (PLATFORM, ASK), commit=PARK)
        assert (await turn.append(request)).answer == INTERRUPTED
        assert (await turn.append(request)).answer == INTERRUPTED
        custom, asked = turn.calls
        assert await reason_of(ledger.send(custom_result(custom))) == "ACTION_REFUSED"
        assert await reason_of(ledger.send(confirm(asked))) == "ACTION_REFUSED"
        assert await reason_of(turn.commit(CLOSE)) == "GAP"
        before = await ledger.position
        entry = turn.results()
        closing = await turn.progress(
            custom, asked, entries=[entry], text=NOT_RUN_TEXT, is_error=True
        )
        assert closing.interrupted
        await turn.commit(CLOSE)
        assert await ledger.types(before) == [
            "user.custom_tool_result", "agent.tool_result", "user.interrupt", *IDLE
        ]  # fmt: skip


async def test_open_actions_close_in_the_interrupts_own_transaction(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.ask((PLATFORM, ALLOW), (CUSTOM, ALLOW), (PLATFORM, ASK))
        platform, custom, asked = turn.calls
        await ledger.send(confirm(asked), interrupt())
        await runner.receive()
        assert await reason_of(ledger.send(custom_result(custom))) == "ACTION_REFUSED"
        assert (await turn.progress(platform)).interrupted
        stopped = await turn.commit(PARK)
        assert stopped.answer == INTERRUPTED
        assert [bool(call.answer_body) for call in stopped.calls] == [False, False, True]
        assert [call.state == turn_pb2.CALL_STATE_CLOSED for call in stopped.calls] == [
            False, True, False
        ]  # fmt: skip
        await turn.progress(custom, asked, entries=[turn.results()], is_error=True)
        before = await ledger.position
        await turn.commit(CLOSE)
        assert await ledger.types(before) == ["user.interrupt", *IDLE]
    # The confirmation was marked when its call was closed.
    assert (await ledger.types()).count("user.tool_confirmation") == 1


async def test_a_parked_turn_is_closed_at_once_and_settled_with_the_next_input(
    ledger: Ledger,
) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.ask((CUSTOM, ALLOW), (CUSTOM, ALLOW), (PLATFORM, ASK), commit=PARK)
        first, second, asked = turn.calls
        await ledger.send(confirm(asked))
        await ledger.send(custom_result(first), system("note"))
        before = await ledger.position
        [echo] = await ledger.send(interrupt())
        assert echo["processed_at"] is not None
        assert await ledger.types(before) == [
            "user.interrupt",
            "user.tool_confirmation",
            "system.message",
            "user.custom_tool_result",
            "agent.tool_result",
            *IDLE,
        ]
        closing = (await ledger.log(before))[3]
        assert (closing["is_error"], closing["custom_tool_use_id"]) == (True, second.use_event_id)
        assert closing["content"][0]["text"] == NOT_RUN_TEXT
        assert await reason_of(ledger.send(custom_result(second))) == "ACTION_REFUSED"
        # Only settling is left: another interrupt has nothing to stop.
        await ledger.send(interrupt())

        settled = await ledger.position
        await ledger.send(message("again"))
        settling = await runner.claimed()
        assert settling.claim.state == turn_pb2.TURN_STATE_SETTLING
        assert not settling.claim.takeover
        assert [call.state for call in settling.claim.calls] == [
            turn_pb2.CALL_STATE_ANSWERED,
            turn_pb2.CALL_STATE_CLOSED,
            turn_pb2.CALL_STATE_CLOSED,
        ]
        assert all(call.result_event_id for call in settling.claim.calls)
        settling.calls = turn.calls
        # The ledger's own results win; repeating them changes nothing.
        await settling.progress(second, asked, text="other", is_error=True)
        assert await reason_of(settling.commit(DONE)) == "GAP"
        answer = await settling.commit(SETTLE, settling.results())
        assert answer.answer == turn_pb2.COMMIT_ANSWER_SETTLED
        assert (await settling.commit(SETTLE)).answer == turn_pb2.COMMIT_ANSWER_SETTLED
        following = await runner.claimed()
        assert b"again" in following.claim.input.body
        assert following.claim.transcript_head.seq == 3
        assert await ledger.types(settled) == ["user.message?", *RUN, "user.message"]


async def test_what_waits_behind_an_interrupted_turn_runs_after_one_idle(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.begin()
        await ledger.send(message("queued before"), interrupt(), message("queued behind"))
        await runner.receive()
        before = await ledger.position
        await turn.commit(CLOSE, turn.entry(turn_pb2.ENTRY_KIND_INPUT))
        second = await runner.claimed()
        await second.say("2", entries=[second.entry(turn_pb2.ENTRY_KIND_INPUT)])
        third = await runner.claimed()
        await third.say("3", entries=[third.entry(turn_pb2.ENTRY_KIND_INPUT)])
        assert [line for line in await ledger.types(before) if "session.status" in line] == [
            "session.status_idle end_turn",
            "session.status_running",
            "session.status_idle end_turn",
        ]


async def test_what_waits_behind_a_parked_turn_runs_after_one_idle(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.ask((CUSTOM, ALLOW), commit=PARK)
        before = await ledger.position
        await ledger.send(message("next"), interrupt())
        settling = await runner.claimed()
        assert await ledger.types(before) == [
            "user.message?", "user.interrupt", "user.custom_tool_result", *IDLE, *RUN
        ]  # fmt: skip
        # The turn that waits is what an interrupt hits now.
        [echo] = await ledger.send(interrupt())
        assert echo["processed_at"] is None
        settling.calls = turn.calls
        await settling.commit(SETTLE, settling.results())
        following = await runner.claimed()
        assert following.claim.interrupted
        await following.commit(CLOSE, following.entry(turn_pb2.ENTRY_KIND_INPUT))
    assert (await ledger.types())[-4:] == ["user.interrupt", *IDLE]


@pytest.mark.parametrize("commit_first", [True, False])
async def test_both_orders_against_the_final_commit(ledger: Ledger, commit_first: bool) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.begin()
        request = turn.answer(text="hi", commit=DONE)
        if commit_first:
            assert (await turn.append(request)).answer == turn_pb2.COMMIT_ANSWER_DONE
            await ledger.send(interrupt())
        else:
            await ledger.send(interrupt())
            assert (await turn.append(request)).answer == INTERRUPTED
            await turn.commit(CLOSE)
    types = await ledger.types()
    assert types.count("session.status_idle end_turn") == 1
    assert types.count("agent.message") == 1


async def test_a_resumed_turn_that_nobody_holds_yet(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.ask((CUSTOM, ALLOW), (PLATFORM, ASK), commit=PARK)
    await ledger.send(custom_result(turn.calls[0]), confirm(turn.calls[1]))
    await ledger.send(interrupt())
    async with ledger.runner() as runner:
        resumed = await runner.claimed()
        assert resumed.claim.interrupted
        assert resumed.claim.state == turn_pb2.TURN_STATE_RUNNING
        resumed.calls = turn.calls
        await resumed.progress(turn.calls[1], entries=[resumed.results()], is_error=True)
        await resumed.commit(CLOSE)
    types = await ledger.types()
    assert types.count("user.tool_confirmation") == 1
    assert types[-4:] == ["user.interrupt", *IDLE]
