"""A client that only asks finds who has to answer, what happened when, and whether it is proved."""

from typing import Any

import anthropic
import pytest
from counterfoil.ledger.v1 import events_pb2, inspection_pb2, session_pb2

from foundation import json
from foundation.errors import Failure
from tests.support.chat import Chat, confirmation, custom_tool, result
from tests.support.model import script, text, use
from tests.support.system import System

TOOLS = [custom_tool("decide")]
ASKS = script(
    {"content": [text("Two."), use("decide", text="1"), use("transfer", text="2")]},
    {"content": [text("Done.")]},
)


async def get(chat: Chat, path: str, **query: Any) -> tuple[int, Any]:
    found = await chat.system.http().get(f"/v1/sessions/{chat.id}/{path}", params=query)
    return found.status_code, found.json()


async def test_open_actions_are_listed_until_they_are_answered(running_system: System) -> None:
    chat = await Chat.open(running_system, tools=TOOLS)
    assert await get(chat, "pending_actions") == (200, {"data": [], "next_page": None})
    events = await chat.say(ASKS)
    uses = [e for e in events if e["type"] in ("agent.custom_tool_use", "agent.tool_use")]
    _, found = await get(chat, "pending_actions")
    thread = events[1]["session_thread_id"]
    answers = ["user.custom_tool_result", "user.tool_confirmation"]
    assert found["data"] == [
        {
            "type": "pending_action",
            "event_id": used["id"],
            "event_type": used["type"],
            "answer_type": answer,
            "name": used["name"],
            "session_thread_id": thread,
            "opened_at": used["processed_at"].replace("000Z", "Z"),
        }
        for used, answer in zip(uses, answers, strict=True)
    ]
    assert [one["event_id"] for one in found["data"]] == events[-1]["stop_reason"]["event_ids"]

    # A poller finds the same ids in the newest idle.
    newest = await chat.client.beta.sessions.events.list(
        chat.id, types=["session.status_idle"], order="desc", limit=1
    )
    assert [event.id for event in newest.data] == [events[-1]["id"]]

    request = inspection_pb2.ListPendingActionsRequest(session_id=chat.id)
    typed = await running_system.sessions.ListPendingActions(request)
    assert [one.event_id for one in typed.data] == [used["id"] for used in uses]

    async with chat.stream() as stream:
        await chat.send(result(uses[0]["id"], "one"))
        _, found = await get(chat, "pending_actions")
        assert [one["event_id"] for one in found["data"]] == [uses[1]["id"]]
        await chat.send(confirmation(uses[1]["id"]))
        await stream.until(lambda e: e.get("stop_reason", {}).get("type") == "end_turn")
    assert (await get(chat, "pending_actions"))[1]["data"] == []


async def test_a_session_of_somebody_else_is_not_found(running_system: System) -> None:
    chat = await Chat.open(running_system)
    chat.id = "sesn_00000000000000000000000000"
    for path in ("pending_actions", "verify", "events"):
        status, body = await get(chat, path)
        assert (status, body["error"]["type"]) == (404, "not_found_error")


async def test_the_log_proves_itself_and_a_kept_head(running_system: System) -> None:
    chat = await Chat.open(running_system)
    await chat.say("hello")
    status, found = await get(chat, "verify")
    assert (status, found["holds"], found["findings"]) == (200, True, [])
    assert found["type"] == "session_verification"
    assert found["session_id"] == chat.id
    assert found["head"].startswith(f"{found['entries']}:")
    assert len(found["vouched_heads"]) == 1

    await chat.say("again")
    _, later = await get(chat, "verify", head=found["head"])
    assert later["holds"]
    assert later["entries"] > found["entries"]
    position, _, digest = found["head"].partition(":")
    _, other = await get(chat, "verify", head=f"{position}:{digest[::-1]}")
    assert not other["holds"]
    assert [one["position"] for one in other["findings"]] == [int(position)]
    _, missing = await get(chat, "verify", head=f"{later['entries'] + 5}:{digest}")
    assert not missing["holds"]
    assert (await get(chat, "verify", head="7"))[0] == 400


async def test_subscribers_over_grpc_may_ask_for_typed_events(running_system: System) -> None:
    chat = await Chat.open(running_system, tools=TOOLS)
    await chat.say(ASKS)
    sessions = running_system.sessions
    request = session_pb2.StreamEventsRequest(session_id=chat.id, position_after=0, typed=True)
    frames: list[session_pb2.StreamFrame] = []
    responses = sessions.StreamEvents(request, timeout=20)
    async for response in responses:
        frames += response.frames
        if frames and frames[-1].type == "session.status_idle":
            break
    responses.cancel()
    assert all(frame.HasField("event") and not frame.json for frame in frames)
    waiting = frames[-1].event.session_status_idle.stop_reason
    used = next(frame.event for frame in frames if frame.type == "agent.custom_tool_use")
    assert waiting.event_ids[0] == used.id
    assert used.agent_custom_tool_use.input == b'{"text": "1"}'
    assert not frames[0].event.HasField("processed_at")

    listed = await sessions.ListEvents(
        session_pb2.ListEventsRequest(session_id=chat.id, typed=True)
    )
    plain = await sessions.ListEvents(session_pb2.ListEventsRequest(session_id=chat.id))
    assert not listed.data
    assert not plain.events
    assert [json.decode(events_pb2.Event, raw) for raw in plain.data] == list(listed.events)
    assert [json.encode(event) for event in listed.events] == list(plain.data)

    for path in ("events", "events/stream"):
        status, body = await get(chat, path, typed="true")
        assert (status, body["error"]["message"].split(":")[0]) == (400, "typed")


async def test_a_silent_subscription_says_how_far_it_is(running_system: System) -> None:
    chat = await Chat.open(running_system)
    await chat.say("hello")
    request = session_pb2.StreamEventsRequest(session_id=chat.id)
    call = running_system.sessions.StreamEvents(request, timeout=30)
    responses = aiter(call)
    first = await anext(responses)
    second = await anext(responses)
    call.cancel()
    assert not second.frames
    assert first.position_through == second.position_through > 0


async def test_filters_of_the_list_work_as_the_official_client_sends_them(
    running_system: System,
) -> None:
    chat = await Chat.open(running_system)
    await chat.say("one")
    events = await chat.say("two")
    since = events[3]["processed_at"]
    listing = chat.client.beta.sessions.events.list
    found = [event.id async for event in listing(chat.id, created_at_gte=since, limit=2)]
    history = await chat.history()
    assert found == [event["id"] for event in history if event["processed_at"] >= since]
    page = await listing(chat.id, types=["user.message", "agent.message"], order="desc", limit=2)
    assert [event.type for event in page.data] == ["agent.message", "user.message"]
    for query in (
        {"order": "asc", "page": page.next_page},
        {"types[]": "user.nothing"},
        {"limit": "1001"},
        {"created_at[gte]": "yesterday"},
    ):
        status, body = await get(chat, "events", **query)
        assert (status, body["error"]["type"]) == (400, "invalid_request_error"), query
        name = list(query)[-1].removesuffix("[]")
        assert body["error"]["message"].startswith(name), body
    raw = await running_system.http().get(
        f"/v1/sessions/{chat.id}/events?types=user.message&types=agent.message&beta=true"
    )
    assert {event["type"] for event in raw.json()["data"]} == {"user.message", "agent.message"}


@pytest.mark.parametrize(
    ("event", "path"),
    [
        ({"type": "user.tool_result", "tool_use_id": "sevt_1"}, "events.0.type"),
        (
            {
                "type": "user.define_outcome",
                "description": "x",
                "rubric": {"type": "text", "content": "y"},
            },
            "events.0.type",
        ),
        (
            {"type": "user.message", "content": [{"type": "redacted"}]},
            "events.0.content.0.type",
        ),
        (
            {
                "type": "user.message",
                "content": [
                    {"type": "text", "text": "see"},
                    {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
                ],
            },
            "events.0.content.1.source.type",
        ),
        (
            {
                "type": "user.message",
                "content": [{"type": "document", "source": {"type": "file", "file_id": "file_1"}}],
            },
            "events.0.content.0.source.type",
        ),
        ({"type": "session.deleted"}, "events.0.type"),
        (
            {
                "type": "user.custom_tool_result",
                "custom_tool_use_id": "sevt_1",
                "session_thread_id": "sthr_1",
            },
            "events.0.session_thread_id",
        ),
        (
            {
                "type": "user.custom_tool_result",
                "custom_tool_use_id": "sevt_1",
                "content": [{"type": "redacted"}],
            },
            "events.0.content.0.type",
        ),
    ],
)
async def test_what_has_no_effect_yet_is_refused_by_name(
    running_system: System, event: dict[str, Any], path: str
) -> None:
    chat = await Chat.open(running_system)
    with pytest.raises(anthropic.BadRequestError) as refused:
        await chat.send(event)
    body: Any = refused.value.body
    assert body["error"]["type"] == "invalid_request_error"
    assert body["error"]["message"].startswith(path)
    assert await chat.history() == []


async def test_grpc_clients_are_refused_the_same_way(running_system: System) -> None:
    chat = await Chat.open(running_system)
    request = session_pb2.SubmitEventsRequest(session_id=chat.id)
    request.events.add().user_tool_result.tool_use_id = "sevt_1"
    with pytest.raises(Failure, match=r"user\.tool_result is not supported yet"):
        await running_system.sessions.SubmitEvents(request)
