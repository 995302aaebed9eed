"""Batches: what is refused, with which path, and that a refused member stores nothing."""

import asyncio

import pytest
from counterfoil.ledger.v1 import client_events_pb2, content_pb2, turn_pb2

from foundation.errors import Failure, name_of
from tests.services.ledger.turns.driver import FOREIGN, Ledger, Runner, Turn, reason_of
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


async def _refused(ledger: Ledger, *events: client_events_pb2.ClientEvent) -> tuple[str, str]:
    """Reason and path; nothing was stored."""
    before, status = await ledger.position, (await ledger.get()).status
    with pytest.raises(Failure) as caught:
        await ledger.send(*events)
    assert (await ledger.position, (await ledger.get()).status) == (before, status)
    return name_of(caught.value.reason), caught.value.path


async def _parked(ledger: Ledger, runner: Runner) -> Turn:
    turn = await runner.claimed()
    await turn.ask((CUSTOM, ALLOW), (PLATFORM, ASK), (CUSTOM, ALLOW), commit=PARK)
    return turn


async def test_answers_that_fit_no_open_call(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await _parked(ledger, runner)
        custom, asked, other = turn.calls
        unknown = "sevt_00000000000000000000000000"
        for events, path in (
            ([custom_result(unknown)], "events.0.custom_tool_use_id"),
            ([custom_result("toolu_01")], "events.0.custom_tool_use_id"),
            ([custom_result(asked)], "events.0.custom_tool_use_id"),
            ([confirm(custom)], "events.0.tool_use_id"),
            ([message("x"), confirm(custom)], "events.1.tool_use_id"),
            ([custom_result(other), custom_result(other)], "events.1.custom_tool_use_id"),
            ([confirm(asked), confirm(asked, deny="")], "events.1.tool_use_id"),
        ):
            assert await _refused(ledger, *events) == ("ACTION_REFUSED", path)
        await ledger.send(custom_result(custom))
        answered = await _refused(ledger, custom_result(other), custom_result(custom))
        assert answered == ("ACTION_REFUSED", "events.1.custom_tool_use_id")
        # The valid members of refused batches claimed nothing.
        await ledger.send(confirm(asked), custom_result(other))
        assert (await runner.claimed()).id == turn.id


async def test_an_answer_of_an_older_round_is_refused(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.ask((CUSTOM, ALLOW))
        [call] = turn.calls
        await ledger.send(custom_result(call))
        await turn.commit(PARK)
        await turn.say("fine", entries=[turn.results()])
    refused = await _refused(ledger, custom_result(call))
    assert refused == ("ACTION_REFUSED", "events.0.custom_tool_use_id")


async def test_content_that_no_event_takes(ledger: Ledger) -> None:
    await ledger.create()
    image = content_pb2.ContentBlock(
        image=content_pb2.ImageBlock(
            source=content_pb2.ImageSource(url=content_pb2.UrlSource(url="https://a/b.png"))
        )
    )
    pictured = custom_result("sevt_1")
    pictured.user_custom_tool_result.content.append(image)
    drawn = system("x")
    drawn.system_message.content.append(image)
    kind = client_events_pb2.CONFIRMATION_RESULT_ALLOW
    allowed = client_events_pb2.UserToolConfirmation(
        tool_use_id="x", result=kind, deny_message="no"
    )
    for events, path in (
        ([message("")], "events.0.content.0.text"),
        ([message("a"), drawn], "events.1.content.1.type"),
        ([message("a"), system("")], "events.1.content.0.text"),
        ([client_events_pb2.ClientEvent(user_tool_confirmation=allowed)], "events.0.deny_message"),
        ([interrupt("sthr_other")], "events.0.session_thread_id"),
    ):
        assert await _refused(ledger, *events) == ("INVALID_FIELD", path)
    found = await _refused(ledger, pictured)
    assert found == ("UNSUPPORTED", "events.0.content.1.source.type")


async def test_a_system_message_stands_last_behind_input(ledger: Ledger) -> None:
    await ledger.create()
    for events, path in (
        ([system("a")], "events.0"),
        ([message("a"), system("b"), message("c")], "events.1"),
        ([message("a"), system("b"), system("c")], "events.1"),
        ([interrupt(), system("b")], "events.1"),
    ):
        assert await _refused(ledger, *events) == ("INVALID_FIELD", path)


async def test_while_parked_a_system_message_goes_with_a_result_only(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await _parked(ledger, runner)
        custom, asked, other = turn.calls
        refused = await _refused(ledger, message("x"), system("y"))
        assert refused == ("INVALID_FIELD", "events.1")
        await ledger.send(custom_result(custom), system("first"))
        await ledger.send(confirm(asked), custom_result(other), system("second"))
        resumed = await runner.claimed()
        bodies = list(resumed.claim.answer_system_bodies)
        assert [b"first" in bodies[0], b"second" in bodies[1]] == [True, True]
    assert [line for line in await ledger.types() if line.startswith("system")] == [
        "system.message?",
        "system.message?",
        "system.message",
        "system.message",
    ]


async def test_a_message_to_a_parked_session_waits(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await _parked(ledger, runner)
        parked = await ledger.position
        await ledger.send(message("meanwhile"))
        assert await ledger.types(parked) == ["user.message?"]
        for call in (turn.calls[0], turn.calls[2]):
            await ledger.send(custom_result(call))
        await ledger.send(confirm(turn.calls[1]))
        assert (await runner.claimed()).id == turn.id


async def test_seven_calls_three_answered_then_four_by_two_clients(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.ask(*[(CUSTOM, ALLOW)] * 7, commit=PARK)
        calls = turn.calls
        await ledger.send(*(custom_result(call, "early") for call in calls[:3]))
        waiting = (await ledger.log())[-1]["stop_reason"]["event_ids"]
        assert waiting == [call.use_event_id for call in calls[3:]]
        await _refused(ledger, custom_result(calls[4]), custom_result(calls[0]))
        await ledger.send(message("next"))
    async with ledger.runner() as runner:
        await asyncio.gather(
            ledger.send(custom_result(calls[6]), custom_result(calls[3])),
            ledger.send(custom_result(calls[5]), custom_result(calls[4])),
        )
        resumed = await runner.claimed()
        assert [call.use_event_id for call in resumed.claim.calls] == [
            call.use_event_id for call in calls
        ]
        assert all(call.answer_body for call in resumed.claim.calls)
        resumed.calls = calls
        await resumed.say("all seven", entries=[resumed.results()])
        following = await runner.claimed()
        await following.say("and next", entries=[following.entry(turn_pb2.ENTRY_KIND_INPUT)])
    types = await ledger.types()
    assert types.count("session.status_idle end_turn") == 1
    assert types[-1] == "session.status_idle end_turn"


async def test_sessions_of_other_workspaces_do_not_exist(ledger: Ledger) -> None:
    await ledger.create()
    assert await reason_of(ledger.get(FOREIGN)) == "NOT_FOUND"
    assert await reason_of(ledger.send(message("x"), workspace=FOREIGN)) == "NOT_FOUND"
    assert await reason_of(ledger.delete(FOREIGN)) == "NOT_FOUND"
