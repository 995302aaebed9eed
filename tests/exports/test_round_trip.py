"""An exported session lives on elsewhere: the same history, the same proofs, the next turn."""

import json
from collections.abc import Sequence
from random import Random

import pytest

from tests.cli.looking import look
from tests.exports.support import Pair, talk
from tests.laws.windows import answered, picture, words
from tests.support.chat import Chat, asks, custom_tool, is_over, message, result
from tests.support.model import script, text, use
from tests.support.system import System
from tests.support.waiting import eventually


async def over(chat: Chat) -> None:
    """The session has come to an end."""

    async def holds() -> bool:
        return is_over((await chat.history())[-1])

    await eventually(holds, 60)


def essence(lines: Sequence[bytes]) -> list[bytes]:
    """Lines without what differs between two exports of one state: time, and sums over it."""
    kept = list[bytes]()
    for line in lines:
        made = json.loads(line)
        if made["type"] == "export.begin":
            del made["exported_at"]
            kept.append(json.dumps(made).encode())
        elif not made["type"].endswith(".end"):
            kept.append(line)
    return kept


async def test_an_imported_session_verifies_and_goes_on(pair: Pair) -> None:
    chat = await talk(pair.source)
    moved = await pair.moved(chat.id)
    assert await moved.history() == await chat.history()
    before = len(await pair.source.model.asked())
    probe = script({"content": [text("here")]})
    await moved.say(probe)
    await chat.say(probe)
    there, here = (await pair.source.model.asked(before + 2))[before:]
    assert there.body == here.body
    await pair.verify(chat.id)


async def test_an_export_of_an_import_is_the_same_but_for_who_made_it_when(pair: Pair) -> None:
    chat = await talk(pair.source)
    lines = await pair.export(chat.id)
    assert (await pair.take()).code == 0
    again = await pair.target.http().get(f"/v1/sessions/{chat.id}/export")
    assert again.status_code == 200
    assert again.headers["content-type"] == "application/x-ndjson"
    assert essence(again.content.splitlines(keepends=True)) == essence(lines)


async def test_a_session_that_waits_for_an_answer_waits_there(pair: Pair) -> None:
    chat = await Chat.open(pair.source, tools=[custom_tool("record")])
    async with chat.stream() as stream:
        await chat.send(message(script({"content": [use("record", text="a")]}, "sum")))
        events = await stream.until(asks)
    (used,) = [event for event in events if event["type"] == "agent.custom_tool_use"]
    moved = await pair.moved(chat.id)
    async with moved.stream() as stream:
        await moved.send(result(used["id"], "noted"))
        await stream.until(is_over)
    await pair.verify(chat.id)


async def test_a_running_session_is_exported_as_far_as_the_ledger_knows_it(pair: Pair) -> None:
    chat = await Chat.open(pair.source)
    await chat.say(script({"content": [text("first")]}))
    await chat.send(message(script({"content": [text("second")], "hold": "held"})))
    await pair.source.model.held("held")
    lines = await pair.export(chat.id)
    await pair.source.model.release("held")
    await over(chat)
    done = await pair.take(lines)
    assert done.code == 0, done.err
    moved = Chat(pair.target, chat.id, pair.target.client())
    await over(moved)
    said = [e["content"][0]["text"] for e in await moved.history() if e["type"] == "agent.message"]
    assert said == ["first", "second"]
    await pair.verify(chat.id)


async def long_talk(system: System) -> Chat:
    """A session of which most is not shown to the model any more, with pictures."""
    chat, random = await Chat.open(system, tools=[custom_tool("record")]), Random(4)
    for number in range(24):
        async with chat.stream() as stream:
            steps = ({"content": [use("record", text="a")]}, {"content": [text(f"done {number}")]})
            await chat.send(message(script(*steps)))
            used = (await stream.until(lambda e: e["type"] == "agent.custom_tool_use"))[-1]
            given = answered(used["id"], words(random, (16_000, 4_000)[number % 2]))
            given["content"].append(picture(60, 40 + number))
            await chat.send(given)
            await stream.until(is_over)
    return chat


@pytest.mark.full
@pytest.mark.parametrize("narrow_pair", ["embedded", "split"], indirect=True)
async def test_what_was_lost_to_the_model_stays_lost_and_can_be_shown(narrow_pair: Pair) -> None:
    pair = narrow_pair
    chat = await long_talk(pair.source)
    history = await chat.history()
    fork = await chat.fork()
    await fork.say(script({"content": [text("on my way")]}))
    for kind, place in REDACTED:
        id = [e for e in history if e["type"] == kind][place]["id"]
        words = ("context", "redact", chat.id, "--event", id, "--reason", "leaked")
        done = await look(pair.source, *words)
        assert done.code == 0, done.err
    probe = script({"content": [text("again")]})
    await chat.say(probe)
    # The fork comes first: it needs nothing of the session that it was made of.
    for one in (fork, chat):
        lines = await pair.export(one.id)
        kinds = {json.loads(line)["type"] for line in lines}
        assert kinds >= RECORDED, kinds
        done = await pair.take()
        assert done.code == 0, done.err
        assert "every request built again" in await pair.verify(one.id, "--requests")
        again = await pair.target.http().get(f"/v1/sessions/{one.id}/export")
        assert essence(again.content.splitlines(keepends=True)) == essence(lines)
        await shows_the_same_requests(pair, one.id)
    origin = (await pair.target.http().get(f"/v1/sessions/{fork.id}")).json()["forked_from"]
    assert origin["session_id"] == chat.id
    assert (await pair.target.http().get(f"/v1/sessions/{chat.id}")).status_code == 200
    before = len(await pair.source.model.asked())
    probe = script({"content": [text("here")]})
    for one in (fork, chat):
        await Chat(pair.target, one.id, pair.target.client()).say(probe)
        await one.say(probe)
        await pair.verify(one.id, "--requests")
    asked = [one.body for one in (await pair.source.model.asked(before + 4))[before:]]
    assert asked[::2] == asked[1::2]


REDACTED = (
    ("user.custom_tool_result", 0),
    ("agent.message", 1),
    ("agent.custom_tool_use", -1),
    ("agent.message", -2),
)
"""What is redacted: a result, and answers of the model, covered by a summary and still shown."""

RECORDED = {
    "context.transition",
    "context.checkpoint",
    "context.revocation",
    "context.snapshot",
    "context.part",
    "files.artifact",
    "journal.redaction",
    "transcript.redaction",
}


async def shows_the_same_requests(pair: Pair, session_id: str) -> None:
    """Every request that was ever made can be shown there, byte for byte, unless something that it
    held was redacted."""
    path = f"/v1/sessions/{session_id}/context_snapshots"
    snapshots = (await pair.target.http().get(path)).json()["data"]
    assert snapshots
    for one in snapshots:
        here, there = [
            await system.http().get(f"{path}/{one['id']}/request")
            for system in (pair.source, pair.target)
        ]
        assert there.status_code == here.status_code
        if there.status_code == 200:
            assert there.content == here.content
