"""What model requests used: told by their spans, kept with the session, told by it."""

from typing import Any

from counterfoil.ledger.v1 import session_events_pb2, turn_pb2
from counterfoil.types.v1 import model_pb2, usage_pb2

from tests.services.ledger.turns.driver import Ledger, Turn, open_ledger
from tests.services.ledger.turns.events import ALLOW, CUSTOM, PLATFORM, interrupt, message

USED = usage_pb2.ModelUsage(
    input_tokens=1,
    output_tokens=2,
    cache_creation_input_tokens=30,
    cache_read_input_tokens=4,
    cache_creation_1h_input_tokens=10,
    web_search_requests=5,
    web_fetch_requests=6,
    speed=model_pb2.MODEL_SPEED_FAST,
)
SESSION = {
    "input_tokens": 1,
    "output_tokens": 2,
    "cache_read_input_tokens": 4,
    "cache_creation": {"ephemeral_1h_input_tokens": 10, "ephemeral_5m_input_tokens": 20},
    "server_tool_use": {"web_search_requests": 5, "web_fetch_requests": 6},
}


def times(count: int) -> dict[str, Any]:
    """The session's usage after so many requests."""
    return {
        name: {part: n * count for part, n in value.items()}
        if isinstance(value, dict)
        else value * count
        for name, value in SESSION.items()
    }


def told(usage: session_events_pb2.Usage) -> dict[str, Any]:
    """A usage without the time."""
    written, tools = usage.cache_creation, usage.server_tool_use
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": usage.cache_read_input_tokens,
        "cache_creation": {
            "ephemeral_1h_input_tokens": written.ephemeral_1h_input_tokens,
            "ephemeral_5m_input_tokens": written.ephemeral_5m_input_tokens,
        },
        "server_tool_use": {
            "web_search_requests": tools.web_search_requests,
            "web_fetch_requests": tools.web_fetch_requests,
        },
    }


async def spent(ledger: Ledger, turn: Turn, *calls: Any, **more: Any) -> None:
    await turn.begin()
    request = turn.answer(*calls, **more)
    request.usage.CopyFrom(USED)
    await turn.append(request)


async def test_a_session_tells_what_its_requests_used(dsn: str, ledger: Ledger) -> None:
    """Also to a process that has to read it, and to the one that wrote it."""
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await spent(ledger, turn, (CUSTOM, ALLOW), commit=turn_pb2.COMMIT_KIND_PARKED)
        assert told((await ledger.get()).usage) == SESSION
    async with open_ledger(dsn) as other:
        other.thread = ledger.thread
        assert told((await other.get()).usage) == SESSION
    log = await ledger.log()
    (end,) = [entry for entry in log if entry["type"] == "span.model_request_end"]
    assert end["model_usage"] == {
        "input_tokens": 1,
        "output_tokens": 2,
        "cache_creation_input_tokens": 30,
        "cache_read_input_tokens": 4,
        "speed": "fast",
    }
    (usage,) = [entry["usage"] for entry in log if entry["type"] == "session.usage"]
    assert {name: usage[name] for name in SESSION} == SESSION


async def test_counts_go_on_in_a_process_that_keeps_no_copy(dsn: str, ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await spent(ledger, turn, text="one", commit=turn_pb2.COMMIT_KIND_DONE)
    async with open_ledger(dsn) as other:
        other.thread = ledger.thread
        await other.send(message("go"))
        async with other.runner() as runner:
            turn = await runner.claimed()
            await spent(other, turn, text="two", commit=turn_pb2.COMMIT_KIND_DONE)
        assert told((await other.get()).usage) == times(2)
    assert told((await ledger.get()).usage) == times(2)


async def test_summaries_have_no_span_and_are_counted_once(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        for _ in range(2):
            await turn.begin(summaries=[USED, USED])
        assert told((await ledger.get()).usage) == times(2)
        await turn.begin(2)
        await turn.append(turn.answer((PLATFORM, ALLOW), number=2))
        await turn.progress(*turn.calls, entries=[turn.results()])
        # A summary that no request followed.
        for _ in range(2):
            await turn.commit(turn_pb2.COMMIT_KIND_DONE, summaries=[USED])
        spans = usage_pb2.ModelUsage(input_tokens=10, output_tokens=5)
        used = (await ledger.get()).usage
        assert used.input_tokens == 3 + spans.input_tokens
        assert used.server_tool_use.web_search_requests == 15
    ends = [entry for entry in await ledger.log() if entry["type"] == "span.model_request_end"]
    assert [end["model_usage"]["input_tokens"] for end in ends] == [0, 10]


async def test_a_commit_that_an_interrupt_comes_before_counts_no_summary(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await ledger.send(interrupt())
        assert (await turn.begin(summaries=[USED])).interrupted
        given_way = await turn.commit(turn_pb2.COMMIT_KIND_DONE, summaries=[USED])
        assert given_way.answer == turn_pb2.COMMIT_ANSWER_INTERRUPTED
        assert told((await ledger.get()).usage) == times(0)
        entry = turn.entry(turn_pb2.ENTRY_KIND_INPUT)
        await turn.commit(turn_pb2.COMMIT_KIND_INTERRUPTED, entry, summaries=[USED])
    assert told((await ledger.get()).usage) == SESSION
