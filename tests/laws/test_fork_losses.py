"""A fork of a session whose history was replaced by a summary, over a whole system."""

from tests.laws.forking import request_of
from tests.support.chat import Chat, Event, is_idle
from tests.support.invariants import check_everything
from tests.support.model import Model, script, text
from tests.support.postgres import SessionPostgres
from tests.support.system import system_of
from tests.support.zygote import Zygote

WINDOW = "20000"
SUMMARY = "The beginning of this conversation was replaced by this summary"


def long(number: int) -> Event:
    """A message that takes some 2,000 tokens."""
    answer = script({"content": [text(f"answer {number}")]})
    texts = (f"goal {number}: " + "x" * 6_000, answer)
    return {"type": "user.message", "content": [text(one) for one in texts]}


def compactions(events: list[Event]) -> int:
    return sum(event["type"] == "agent.thread_context_compacted" for event in events)


async def say(chat: Chat, said: Event) -> list[Event]:
    async with chat.stream() as stream:
        await chat.send(said)
        return await stream.until(is_idle)


async def test_a_summary_is_the_forks_too_and_is_told_in_the_source_alone(
    zygote: Zygote, model: Model, postgres: SessionPostgres
) -> None:
    settings = {"COUNTERFOIL_MODEL_WINDOW_TOKENS": WINDOW}
    async with system_of("embedded", zygote, model, postgres, **settings) as system:
        await system.start()
        chat = await Chat.open(system)
        told = number = 0
        while not told:
            number += 1
            assert number < 20
            told = compactions(await say(chat, long(number)))
        fork = await chat.fork()
        probe = script({"content": [text("Probed.")]})
        found, expected = await request_of(fork, probe), await request_of(chat, probe)
        assert SUMMARY in found.messages[0]["content"][0]["text"]
        assert found.body == expected.body
        assert compactions(await fork.history()) == 0
        # From here on it makes summaries of its own, on top of the one that it began with.
        own = 0
        while not own:
            number += 1
            assert number < 40
            own = compactions(await say(fork, long(number)))
        assert compactions(await chat.history()) == told
        inner = await fork.fork()
        again, same = await request_of(inner, probe), await request_of(fork, probe)
        assert again.body == same.body
        for one in (chat, fork, inner):
            await check_everything(one, await one.history(), all_requests=False)
