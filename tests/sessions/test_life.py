"""What an application does with a session besides talking to it, with the official client."""

import pytest

from tests.sessions.support import refused
from tests.support.chat import Chat, custom_tool, is_over, message, result, types_of
from tests.support.invariants import check_chains, check_operations
from tests.support.model import script, text, use
from tests.support.system import System

TOOL = custom_tool("record")
ASKS = script({"content": [use("record", text="a"), use("record", text="b")]})
SAYS = script({"content": [text("all is well")]})


async def test_title_and_metadata_change_while_the_session_lives(running_system: System) -> None:
    chat = await Chat.open(running_system)
    sessions = chat.client.beta.sessions
    async with chat.stream() as stream:
        made = await sessions.update(chat.id, title="Trip", metadata={"a": "1", "b": "2"})
        event = await stream.next()
        assert (event["title"], event["metadata"]) == ("Trip", {"a": "1", "b": "2"})
        assert "agent" not in event
        assert (made.title, made.metadata) == ("Trip", {"a": "1", "b": "2"})

        await sessions.update(chat.id, title="Trip", metadata={"a": "1", "c": None})  # no change
        changed = await sessions.update(chat.id, metadata={"a": None, "b": "3"})
        event = await stream.next()
        assert event["metadata"] == {"b": "3"}
        assert "title" not in event
        assert (changed.title, changed.metadata) == ("Trip", {"b": "3"})

        cleared = await sessions.update(chat.id, title=None, metadata={"b": None})
        event = await stream.next()
        assert event["title"] == ""
        assert "metadata" not in event
        assert (cleared.title, cleared.metadata) == (None, {})
    assert types_of(await chat.history()) == ["session.updated"] * 3
    assert (await sessions.retrieve(chat.id)).updated_at == cleared.updated_at


async def test_an_archived_session_can_only_be_read(running_system: System) -> None:
    chat = await Chat.open(running_system)
    sessions = chat.client.beta.sessions
    await chat.say(SAYS)
    before = types_of(await chat.history())
    archived = await sessions.archive(chat.id)
    assert archived.status == "terminated"
    assert archived.archived_at is not None
    again = await sessions.archive(chat.id)
    assert again.to_dict() == archived.to_dict()
    last = ["session.thread_status_terminated", "session.status_terminated"]
    assert types_of(await chat.history()) == before + last

    await refused(chat.send(message("more")), "archived")
    await refused(sessions.update(chat.id, title="late"), "archived")
    async with chat.stream() as stream:
        with pytest.raises(StopAsyncIteration):
            await stream.next()
    url = f"/v1/sessions/{chat.id}/events/stream"
    raw = await chat.client.get(url, cast_to=str)
    assert raw == 'event: ping\ndata: {"type":"ping"}\n\n'
    listed = [one.id async for one in sessions.list()]
    assert chat.id not in listed
    assert chat.id in [one.id async for one in sessions.list(include_archived=True)]
    await check_chains(chat)


async def test_archiving_a_parked_session_closes_what_it_waits_for(
    running_system: System,
) -> None:
    chat = await Chat.open(running_system, tools=[TOOL])
    await chat.say(ASKS)
    uses = [event for event in await chat.history() if event["type"] == "agent.custom_tool_use"]
    await chat.send(message("waits behind it"))
    await chat.send(result(uses[1]["id"], "kept"))
    before = await chat.history()
    async with chat.stream() as stream:
        await chat.client.beta.sessions.archive(chat.id)
        events = await stream.until(lambda event: event["type"] == "session.status_terminated")
        with pytest.raises(StopAsyncIteration):
            await stream.next()
    assert types_of(events) == [
        "user.custom_tool_result",
        "session.thread_status_terminated",
        "session.status_terminated",
    ]
    assert (events[0]["custom_tool_use_id"], events[0]["is_error"]) == (uses[0]["id"], True)
    assert len(await chat.history()) == len(before) + 3
    await refused(chat.send(result(uses[0]["id"], "late")), "archived")


async def test_a_running_session_is_neither_archived_nor_deleted(running_system: System) -> None:
    chat = await Chat.open(running_system)
    sessions = chat.client.beta.sessions
    slow = script({"content": [text("slowly")], "delay_ms": 1500})
    async with chat.stream() as stream:
        await chat.send(message(slow))
        await refused(sessions.archive(chat.id), "is running")
        await refused(sessions.delete(chat.id), "is running")
        await stream.until(is_over)
    deleted = await sessions.delete(chat.id)
    assert deleted.to_dict() == {"id": chat.id, "type": "session_deleted"}
    await refused(sessions.retrieve(chat.id), status=404)
    await refused(sessions.archive(chat.id), status=404)


async def test_a_deleted_sessions_streams_hear_of_it_and_end(running_system: System) -> None:
    chat = await Chat.open(running_system)
    async with chat.stream() as stream:
        await chat.client.beta.sessions.delete(chat.id)
        assert (await stream.next())["type"] == "session.deleted"
        with pytest.raises(StopAsyncIteration):
            await stream.next()


async def test_the_primary_thread_shows_what_the_session_shows(running_system: System) -> None:
    chat = await Chat.open(running_system)
    threads = chat.client.beta.sessions.threads
    (thread,) = [one async for one in threads.list(chat.id)]
    assert (thread.session_id, thread.parent_thread_id) == (chat.id, None)
    found = await threads.retrieve(thread.id, session_id=chat.id)
    assert (found.id, found.agent, found.status) == (thread.id, thread.agent, "idle")
    source = await threads.events.stream(thread.id, session_id=chat.id)
    async with source, chat.stream() as stream:
        await chat.send(message(SAYS))
        shown = await stream.until(is_over)
        for event in shown:
            assert (await anext(source)).to_dict(mode="json") == event
    listed = threads.events.list(thread.id, session_id=chat.id)
    history = await chat.history()
    assert [event.to_dict(mode="json") async for event in listed] == history
    page = await threads.events.list(thread.id, session_id=chat.id, limit=2)
    assert [event.id for event in page.data] == [event["id"] for event in history[:2]]
    assert [one.id async for one in threads.list(chat.id, statuses=["idle"])] == [thread.id]
    assert not [one async for one in threads.list(chat.id, statuses=["running", "terminated"])]

    await refused(threads.archive(thread.id, session_id=chat.id), "primary thread", "archive")
    await chat.client.beta.sessions.archive(chat.id)
    over = await threads.archive(thread.id, session_id=chat.id)
    assert (over.status, over.archived_at is not None) == ("terminated", True)
    other = await Chat.open(running_system)
    await refused(threads.retrieve(thread.id, session_id=other.id), status=404)
    await refused(threads.events.stream(thread.id, session_id=other.id), status=404)
    await check_operations(chat, await check_chains(chat))
