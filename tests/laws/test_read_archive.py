"""The model reads again what it is not shown whole: an archived result, and a text that was too
long to be shown. Each page is new material at the tail; nothing in front of it changes."""

import re
from random import Random
from typing import Any

from tests.laws.windows import COMPACTED, answered, check_requests, newest, tell, with_window, words
from tests.support.chat import Chat, asks, custom_tool, is_idle, message, stop_of, types_of
from tests.support.invariants import check_chains, check_history, check_operations
from tests.support.model import Asked, Model, begins_with, script, text, use
from tests.support.postgres import SessionPostgres
from tests.support.system import System
from tests.support.zygote import Zygote

TOOL = custom_tool("record")
WINDOW = 40_000
PAGE = 6_000
_REF = re.compile(r'read_archive, ref \\"(op_\w+)\\"')
_FILE = re.compile(r"\.counterfoil-tool-results/art_\w+\.txt")


def read(ref: str, offset: int) -> dict[str, Any]:
    """A step that reads a page."""
    return {"content": [use("read_archive", ref=ref, offset=offset)]}


def page_of(asked: Asked) -> str:
    """The page at a request's tail, without the line in front of it."""
    (result,) = asked.messages[-1]["content"]
    assert "is_error" not in result
    (block,) = result["content"]
    head, _, page = block["text"].partition("\n")
    assert head.startswith("[Characters")
    return page


async def check_session(chat: Chat) -> None:
    """What holds of every session."""
    check_history(await chat.history())
    thread = await check_chains(chat)
    await check_operations(chat, thread)
    await check_requests(chat, thread)


async def test_an_archived_result_is_read_again_at_the_tail(
    zygote: Zygote, model: Model, postgres: SessionPostgres
) -> None:
    random, said = Random(5), dict[str, str]()
    async with with_window(WINDOW, zygote, model, postgres) as system:
        chat = await Chat.open(system, tools=[TOOL])
        async with chat.stream() as stream:
            await chat.send(message(script({"content": [use("record", text="0")]})))
            while True:
                end = (await stream.until(is_idle))[-1]
                assert asks(end)
                (call,) = end["stop_reason"]["event_ids"]
                archived = _REF.findall((await newest(chat, 0))[-1].body.decode())
                if archived:
                    break
                said[call] = words(random, 14_000)
                step = {"content": [use("record", text=str(len(said)))]}
                await chat.send(answered(call, script(step), said[call]))
            before = len(await newest(chat, 0)) - 1
            steps = [read(archived[0], 0), read(archived[0], PAGE), {"content": [text("done")]}]
            await chat.send(answered(call, script(*steps)))
            assert stop_of((await stream.until(is_idle))[-1]) == "end_turn"
        asked = await newest(chat, before)
        assert len(asked) == 4
        begins_with(asked)
        read_again = "".join(map(page_of, asked[2:]))
        # The result begins with its script, in front of the words.
        at = len(read_again.partition("\n")[0]) + 1
        assert read_again[at:] in {one[: len(read_again) - at] for one in said.values()}
        assert len(read_again) == 2 * PAGE
        assert COMPACTED not in types_of(await chat.history())
        await check_session(chat)


async def test_a_text_that_was_too_long_to_be_shown_is_read_through_to_its_end(
    running_system: System,
) -> None:
    chat = await Chat.open(running_system, tools=[TOOL])
    long = words(Random(6), 130_000)
    async with chat.stream() as stream:
        await chat.send(message(script({"content": [use("record")]}, {"content": [text("long")]})))
        (call,) = (await stream.until(is_idle))[-1]["stop_reason"]["event_ids"]
        await chat.send(answered(call, long))
        assert stop_of((await stream.until(is_idle))[-1]) == "end_turn"
    shown = (await newest(chat, 0))[-1].body.decode()
    assert long[:PAGE] not in shown
    (file,) = set(_FILE.findall(shown))
    places = [0, 60_000, len(long) // PAGE * PAGE]
    before = len(await newest(chat, 0)) - 1
    steps = [*(read(file, place) for place in places), {"content": [text("done")]}]
    events = await tell(chat, message(script(*steps)))
    assert stop_of(events[-1]) == "end_turn"
    asked = await newest(chat, before)
    begins_with(asked)
    assert [page_of(one) for one in asked[2:]] == [long[at : at + PAGE] for at in places]
    await check_session(chat)
