"""What an operator redacted is gone: from requests, pages, rows, forks. The chains still hold."""

import json
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from counterfoil.files.v1 import artifacts_pb2

from tests.cli.looking import look
from tests.laws.unsealed import Unsealer
from tests.support.chat import Chat, Event, asks, custom_tool, is_over, result
from tests.support.model import Model, script, text, use
from tests.support.platform_tool import PICTURE, PICTURE_TEXT
from tests.support.postgres import SessionPostgres
from tests.support.system import System, system_of
from tests.support.zygote import Zygote

SAID, SHOWN = "canary-said-7f3a", "canary-shown-91c4"
TOLD, WROTE = "canary-told-2b8d", "canary-wrote-5e6f"
SECRETS = (SAID, SHOWN, TOLD, WROTE)
GO_ON = script({"content": [text("Going on.")]})


@pytest.fixture
async def chat(running_system: System) -> Chat:
    return await talked(running_system)


async def talked(system: System) -> Chat:
    """A session with secrets in its first message and what came with it, in a result, and in both
    answers: in thinking, texts and the input of a call."""
    chat = await Chat.open(system, tools=[custom_tool("decide")])
    thinking = {"type": "thinking", "thinking": f"Is it {WROTE}?"}
    first = [thinking, text(f"It is {WROTE}."), use("decide", text=WROTE)]
    steps = script({"content": first}, {"content": [text(f"Decided on {WROTE}.")]})
    blocks = [{"type": "text", "text": said} for said in (f"The key is {SAID}.", steps)]
    told = {"type": "system.message", "content": [{"type": "text", "text": TOLD}]}
    async with chat.stream() as stream:
        await chat.send({"type": "user.message", "content": blocks}, told)
        waiting = await stream.until(asks)
        (use_id,) = waiting[-1]["stop_reason"]["event_ids"]
        await chat.send(result(use_id, f"It is {SHOWN}."))
        await stream.until(is_over)
    await chat.say(GO_ON)
    return chat


def of_type(history: list[Event], kind: str) -> Event:
    return next(event for event in history if event["type"] == kind)


async def redact(system: System, session_id: str, event_id: str) -> list[dict[str, Any]]:
    words = ("context", "redact", session_id, "--event", event_id, "--reason", "a leaked key")
    return (await look(system, *words, "-o", "json")).rows


async def redact_all(chat: Chat, history: list[Event]) -> list[list[dict[str, Any]]]:
    """Redacts the result, the message, and both answers: one by its call, one by its text."""
    events = [
        *(of_type(history, kind) for kind in ("user.custom_tool_result", "user.message")),
        of_type(history, "agent.custom_tool_use"),
        next(e for e in reversed(history) if "Decided" in json.dumps(e.get("content"))),
    ]
    return [await redact(chat.system, chat.id, event["id"]) for event in events]


async def kept(system: System) -> bytes:
    """Everything that the databases hold, sealed values opened."""
    unsealer = Unsealer.of(Path(system.folder), system.environment)
    urls = {v for k, v in system.environment.items() if k.endswith("_DATABASE_URL")}
    if not urls:
        urls = {f"postgresql://counterfoil@/counterfoil?host={system.folder}/postgres/socket"}
    found: list[bytes] = []
    for url in sorted(urls):
        connection = await asyncpg.connect(url)
        try:
            tables = await connection.fetch(
                "SELECT table_schema, table_name FROM information_schema.tables"
                " WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
            )
            for schema, table in tables:
                for row in await connection.fetch(f'SELECT * FROM "{schema}"."{table}"'):
                    found += [unsealer.opened(value) for value in row.values()]
        finally:
            await connection.close()
    return b"\n".join(found)


async def test_a_redacted_secret_is_nowhere_and_the_chains_hold(chat: Chat) -> None:
    system, history = chat.system, await chat.history()
    fork = await chat.fork()
    await fork.say(GO_ON)
    snapshots = (await system.http().get(f"/v1/sessions/{chat.id}/context_snapshots")).json()
    before = await kept(system)
    for secret in SECRETS:
        assert secret.encode() in before, secret

    for rows in await redact_all(chat, history):
        assert [row["session_id"] for row in rows] == [chat.id, fork.id]
        assert rows[0]["forks"] == [fork.id]
        assert rows[0]["events"]

    after = await kept(system)
    pages = json.dumps(await chat.history())
    for secret in SECRETS:
        assert secret.encode() not in after, secret
        assert secret not in pages
    assert "(this message was redacted)" in pages
    assert "This input was redacted" in pages
    for session_id in (chat.id, fork.id):
        verdict = await look(system, "verify", session_id, "-o", "json")
        assert verdict.code == 0, verdict.out
    old = snapshots["data"][-1]["id"]
    answer = await system.http().get(f"/v1/sessions/{chat.id}/context_snapshots/{old}/request")
    assert answer.status_code == 400
    assert "was redacted" in answer.json()["error"]["message"]

    asked = len(await system.model.asked())
    ends = [await one.say(GO_ON + " ") for one in (chat, fork, await chat.fork())]
    assert all(is_over(events[-1]) for events in ends)
    later = (await system.model.asked())[asked:]
    assert len(later) == 3  # the model took them
    for request in later:
        for secret in SECRETS:
            assert secret.encode() not in request.body
    assert await redact_all(chat, history)  # again: nothing is left to do, and nothing fails


POINTS = ("context.redact", "journal.redact", "transcript.redact", "ledger.redact")


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(f"{name}.{when}", marks=() if name == "context.redact" else pytest.mark.full)
        for name in POINTS
        for when in ("before", "after")
    ],
)
async def test_a_process_that_dies_in_a_redaction_shows_nothing_afterwards(
    zygote: Zygote, model: Model, postgres: SessionPostgres, point: str
) -> None:
    async with system_of("embedded", zygote, model, postgres) as system:
        await system.start(f"{point}=kill")
        chat = await talked(system)
        history = await chat.history()
        kind = "user.message" if point.startswith("transcript") else "user.custom_tool_result"
        event, secret = of_type(history, kind)["id"], SAID if "message" in kind else SHOWN
        words = ("context", "redact", chat.id, "--event", event, "--reason", "a leaked key")
        assert (await look(system, *words)).code == 1
        assert await system.died() == "embedded"
        await system.start()
        if point != "context.redact.before":
            asked = len(await system.model.asked())
            await chat.say(GO_ON + " ")
            for request in (await system.model.asked())[asked:]:
                assert secret.encode() not in request.body
        assert await redact(system, chat.id, event)
        assert secret.encode() not in await kept(system)
        assert (await look(system, "verify", chat.id)).code == 0


@pytest.mark.full
async def test_each_service_dies_behind_its_commit_and_the_same_command_goes_on(
    zygote: Zygote, model: Model, postgres: SessionPostgres
) -> None:
    """Every answer is lost once: nothing is recorded twice, and everything is erased."""
    async with system_of("split", zygote, model, postgres) as system:
        await system.start()
        chat = await talked(system)
        event = of_type(await chat.history(), "agent.custom_tool_use")["id"]
        words = ("context", "redact", chat.id, "--event", event, "--reason", "a leaked key")
        services = [point.partition(".")[0] for point in POINTS]
        await system.kill(*services)
        await system.start(",".join(f"{point}.after=kill" for point in POINTS))
        for service in services:
            assert (await look(system, *words)).code == 1
            assert await system.died() == service
            await system.start()
        assert await redact(system, chat.id, event)
        (url,) = {v for k, v in system.environment.items() if k.endswith("_DATABASE_URL")}
        connection = await asyncpg.connect(url)
        try:
            counts = [
                await connection.fetchval(f"SELECT count(*) FROM {table}")
                for table in ("context.transitions", "transcript.redactions", "ledger.redactions")
            ]
            assert counts == [1, 1, 2]  # the answer's text and its call
            assert await connection.fetchval("SELECT count(input) FROM journal.operations") == 0
        finally:
            await connection.close()
        await chat.complete([f"The key is {SAID}.", GO_ON, GO_ON + " "])
        (said,) = json.loads((await system.model.asked())[-1].body)["messages"][1:2]
        assert WROTE not in json.dumps(said)
        assert (await look(system, "verify", chat.id)).code == 0


@pytest.mark.full
async def test_a_fork_that_is_being_copied_is_reached_when_the_command_is_given_again(
    zygote: Zygote, model: Model, postgres: SessionPostgres
) -> None:
    async with system_of("split", zygote, model, postgres) as system:
        await system.start()
        chat = await talked(system)
        event = of_type(await chat.history(), "user.message")["id"]
        words = ("context", "redact", chat.id, "--event", event, "--reason", "a leaked key")
        await system.kill("context")
        await system.start("context.copy.before=kill")
        fork = await chat.fork()
        assert await system.died() == "context"  # its transcript holds the secret by now
        await system.kill("runner")
        roles = system.roles
        system.roles = [role for role in roles if role.name != "runner"]
        await system.start()
        done = await look(system, *words)
        assert done.code == 1
        assert fork.id in done.err
        assert SAID.encode() in await kept(system)
        system.roles = roles
        await system.start()
        await fork.complete([GO_ON])
        assert SAID.encode() not in (await system.model.asked())[-1].body
        assert len(await redact(system, chat.id, event)) == 2
        assert SAID.encode() not in await kept(system)
        for session_id in (chat.id, fork.id):
            assert (await look(system, "verify", session_id)).code == 0


async def test_what_is_no_part_of_the_history_is_refused(chat: Chat) -> None:
    history = await chat.history()
    idle = of_type(history, "session.status_idle")["id"]
    words = ("context", "redact", chat.id, "--reason", "none")
    cases = [
        (("--event", idle), 1),
        (("--operation", "op_00000000000000000000000000"), 1),
        ((), 2),
        (("--event", idle, "--operation", "op_1"), 2),
    ]
    for more, code in cases:
        assert (await look(chat.system, *words, *more)).code == code, more


async def test_bytes_go_at_once_with_the_last_result_that_shows_them(
    zygote: Zygote, model: Model, postgres: SessionPostgres
) -> None:
    async with system_of("embedded", zygote, model, postgres) as system:
        await system.start()
        await pictured_twice(system)


async def pictured_twice(system: System) -> None:
    chat = await Chat.open(system)
    said = script({"content": [use("note", text=PICTURE_TEXT)]}, {"content": [text("Seen.")]})
    await chat.complete([said, said + " "])
    asked = (await system.model.asked())[-1]
    assert asked.body.decode().count(PICTURE) == 2
    results = [e["id"] for e in await chat.history() if e["type"] == "agent.tool_result"]
    inventory = artifacts_pb2.SweepBytesRequest(limit=100)
    for event_id, deleted in zip(results, (0, 1), strict=True):
        assert (await system.artifacts.SweepBytes(inventory)).looked_at == 1
        (row,) = await redact(system, chat.id, event_id)
        assert row["artifacts_deleted"] == deleted
    assert (await system.artifacts.SweepBytes(inventory)).looked_at == 0
    await chat.say(GO_ON)
    assert PICTURE not in (await system.model.asked())[-1].body.decode()
    assert PICTURE not in json.dumps(await chat.history())
