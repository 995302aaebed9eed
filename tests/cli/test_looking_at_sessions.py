"""What commands show of a session is what the public surface, the journal and context hold."""

import asyncio
import hashlib
import json
from asyncio.subprocess import Process

import asyncpg
import pytest

from tests.cli.looking import begin, look
from tests.support.chat import Chat, custom_tool, is_over, message, result
from tests.support.model import script, text, use
from tests.support.system import System


@pytest.fixture
async def chat(running_system: System) -> Chat:
    """A session with one turn, in which the application answered a call."""
    chat = await Chat.open(running_system, tools=[custom_tool("record")])
    async with chat.stream() as stream:
        steps = ({"content": [use("record", text="a")]}, {"content": [text("done")]})
        await chat.send(message(script(*steps)))
        use_event = (await stream.until(lambda e: e["type"] == "agent.custom_tool_use"))[-1]
        await chat.send(result(use_event["id"], "noted"))
        await stream.until(is_over)
    return chat


async def test_json_has_whole_objects_and_tables_have_their_ids(chat: Chat) -> None:
    system, id = chat.system, chat.id
    sessions, events, tail, journal, snapshots = await asyncio.gather(
        look(system, "sessions", "list", "--status", "idle", "-o", "json"),
        look(system, "sessions", "events", id, "-o", "json"),
        look(system, "sessions", "tail", id, "--no-follow", "-o", "json"),
        look(system, "journal", "list", id, "-o", "json"),
        look(system, "context", "list", id, "-o", "json"),
    )
    assert [row["id"] for row in sessions.rows] == [id]
    history = await chat.history()
    assert [row["id"] for row in events.rows] == [event["id"] for event in history]
    assert {row["id"] for row in tail.rows} == {event["id"] for event in history}
    assert {(row["kind"], row["state"]) for row in journal.rows} == {
        ("model_call", "completed"),
        ("tool_call", "completed"),
    }
    (call,) = [row for row in journal.rows if row["kind"] == "tool_call"]
    assert (call["tool_name"], call["owner"]) == ("record", "client_custom")
    assert "noted" in json.dumps(call["projection"])
    asked = [row["snapshot_id"] for row in journal.rows if row["kind"] == "model_call"]
    assert [row["id"] for row in snapshots.rows] == asked
    tables = await asyncio.gather(
        look(system, "sessions", "list"),
        look(system, "sessions", "events", id, "--newest", "--limit", "1"),
        look(system, "sessions", "tail", id, "--no-follow"),
        look(system, "journal", "list", id),
        look(system, "context", "list", id),
        look(system, "context", "show", asked[0]),
    )
    shown = [id, history[-1]["id"], "record", call["id"], asked[0], "the same bytes"]
    for table, word in zip(tables, shown, strict=True):
        assert table.code == 0, table.err
        assert word in table.out


async def test_a_request_is_shown_byte_for_byte_and_operators_leave_records(chat: Chat) -> None:
    system = chat.system
    snapshot = (await look(system, "context", "list", chat.id, "-o", "json")).rows[0]
    show = ("context", "show", snapshot["id"])
    request = await look(system, *show, "--request")
    assert hashlib.sha256(request.out.encode()).hexdigest() == snapshot["request_digest"]
    assert json.loads(request.out)["tools"][0]["name"] == "record"
    about = (await look(system, *show, "-o", "json")).rows[0]
    assert about == {**snapshot, **about}
    assert about["session_id"] == chat.id
    assert about["recipe"]["tools"][0]["name"] == "record"
    await look(system, "journal", "list", chat.id, "--purpose", "ticket 7")
    assert await _one(system, "journal", "purpose") == "ticket 7"
    assert await _one(system, "context", "snapshot_id") == snapshot["id"]


async def test_two_requests_are_compared(chat: Chat) -> None:
    system = chat.system
    list_ = ("context", "list", chat.id, "-o", "json")
    listed, newest = await look(system, *list_), await look(system, *list_, "--newest", "--limit=1")
    first, second = [row["id"] for row in listed.rows]
    assert [row["id"] for row in newest.rows] == [second]
    found = (await look(system, "context", "diff", first, second, "-o", "json")).rows[0]
    assert (found["cause"], found["first_difference"]) == ("appended", None)
    assert found["shared_blocks"] == found["blocks"] < found["other_blocks"]
    table = await look(system, "context", "diff", second, first)
    assert table.code == 0, table.err
    assert "appended" in table.out


NOT_THERE = (
    (("sessions", "events", "sesn_none"), "session sesn_none was not found"),
    (("sessions", "tail", "sesn_none"), "session sesn_none was not found"),
    (("journal", "list", "sesn_none"), "session sesn_none was not found"),
    (("context", "list", "sesn_none"), "session sesn_none was not found"),
    (("context", "show", "snap_none"), "snapshot snap_none was not found"),
    (("context", "diff", "snap_none", "snap_none"), "snapshot snap_none was not found"),
    (("sessions", "list", "--status", "odd"), "one of idle, running"),
)


async def test_what_is_not_there_is_named(running_system: System) -> None:
    ended = await asyncio.gather(*(look(running_system, *words) for words, _ in NOT_THERE))
    for done, (_, said) in zip(ended, NOT_THERE, strict=True):
        assert done.code == 1
        assert said in done.err
        assert "Traceback" not in done.err


async def test_tail_goes_on_behind_the_last_event_after_a_restart(chat: Chat) -> None:
    process = await begin(chat, "sessions", "tail", chat.id, "-o", "json")
    try:
        before = [event["id"] for event in await chat.history()]
        seen = await _lines(process, before[-1])
        await chat.system.kill()
        assert process.stderr is not None
        async with asyncio.timeout(30):
            assert b"reconnecting" in await process.stderr.readline()
        await chat.system.start()
        await chat.say("again")
        after = [event["id"] for event in await chat.history()]
        seen += await _lines(process, after[-1])
        assert set(seen) == set(after)
        # A message that was queued comes twice, the second time with its time.
        assert len(seen) - len(set(seen)) == 2
    finally:
        process.kill()
        await process.wait()


async def _lines(process: Process, last: str) -> list[str]:
    """Ids of the events up to the one that is named."""
    assert process.stdout is not None
    found: list[str] = []
    async with asyncio.timeout(60):
        while not found or found[-1] != last:
            found.append(json.loads(await process.stdout.readline())["id"])
    return found


async def _one(system: System, service: str, column: str) -> str:
    dsn = system.environment[f"COUNTERFOIL_{service.upper()}_DATABASE_URL"]
    connection = await asyncpg.connect(dsn)
    try:
        found = await connection.fetchval(
            f"SELECT {column} FROM {service}.access ORDER BY accessed_at DESC LIMIT 1"
        )
    finally:
        await connection.close()
    return str(found)


async def test_a_fork_is_made_and_shown(chat: Chat) -> None:
    system, end = chat.system, (await chat.history())[-1]
    (made,) = (
        await look(
            system,
            "sessions",
            "fork",
            chat.id,
            "--at",
            end["id"],
            "--title",
            "plan B",
            "-o",
            "json",
        )
    ).rows
    assert made["title"] == "plan B"
    assert made["forked_from"] == {"session_id": chat.id, "event_id": end["id"]}
    refused = await look(system, "sessions", "fork", chat.id, "--at", "sevt_none")
    assert refused.code == 1
    assert "is no processed event of this session" in refused.err
