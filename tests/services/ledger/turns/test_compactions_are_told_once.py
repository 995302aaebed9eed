"""`agent.thread_context_compacted` stands once in the log for each id, in front of the first
request that was made of the compacted history, whoever sends how many requests of it."""

import pytest
from anthropic.types.beta.sessions import BetaManagedAgentsAgentThreadContextCompactedEvent
from counterfoil.ledger.v1 import session_pb2

from foundation import failpoints, ids
from foundation.rpc.context import CallContext, serving
from foundation.storage import CommitUnknown
from services.ledger import lane_store
from tests.services.ledger.turns.driver import WORKSPACE, Ledger, Turn, open_ledger
from tests.services.ledger.turns.events import ALLOW, PLATFORM, interrupt, message
from tests.services.ledger.turns.test_leases import again

COMPACTED = "agent.thread_context_compacted"
START, END = "span.model_request_start", "span.model_request_end"
FIRST, SECOND = (ids.derived("event", "compaction", "thread", name) for name in ("a", "b"))


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids that the log was asked for."""
    asked: list[str] = []
    original = lane_store.is_in_log

    async def counting(reader: lane_store.Reader, *names: str) -> bool:
        asked.append(names[-1])
        return await original(reader, *names)

    monkeypatch.setattr(lane_store, "is_in_log", counting)
    return asked


async def told(ledger: Ledger) -> list[str]:
    return [entry["id"] for entry in await ledger.log() if entry["type"] == COMPACTED]


async def work(turn: Turn, compaction: str) -> None:
    """A round with a call, as far as its results."""
    await turn.begin(compaction=compaction)
    await turn.append(turn.answer((PLATFORM, ALLOW)))
    await turn.progress(*turn.calls, entries=[turn.results()])


async def test_it_comes_before_the_first_request_and_only_there(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.begin(1)
        before = await ledger.position
        await turn.begin(2, FIRST)
        assert await ledger.types(before) == [END, COMPACTED, START]
        await turn.begin(2, FIRST)
        await turn.begin(3, FIRST)
        await turn.append(turn.answer((PLATFORM, ALLOW), number=3))
        await turn.progress(*turn.calls, entries=[turn.results()])
        await work(turn, FIRST)
        await work(turn, SECOND)
        await turn.begin(compaction=SECOND)
        # The first one in force again: its id was told.
        await turn.begin(2, FIRST)
        await turn.say("done", number=2)
    assert await told(ledger) == [FIRST, SECOND]


async def test_the_log_is_asked_once_in_a_claim(ledger: Ledger, lookups: list[str]) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await work(turn, "")
        assert lookups == []
        for _ in range(3):
            await work(turn, FIRST)
        assert lookups == [FIRST]
        await turn.say("done")
        await ledger.send(message("more"))
        turn = await runner.claimed()
        lookups.clear()
        for _ in range(3):
            await work(turn, FIRST)
        assert len(lookups) <= 1
    assert await told(ledger) == [FIRST]


async def test_a_takeover_tells_it_no_second_time(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        old = await runner.claimed()
        await old.begin(compaction=FIRST)
        new = await again(ledger, runner, old)
        await new.begin(compaction=FIRST)
        await new.say("done", number=2)
    assert await told(ledger) == [FIRST]


async def test_another_process_tells_it_no_second_time(dsn: str) -> None:
    async with open_ledger(dsn) as first:
        await first.create("go")
        async with first.runner() as runner:
            turn = await runner.claimed()
            await work(turn, FIRST)
            async with open_ledger(dsn) as second:
                second.thread = first.thread
                turn.ledger = second
                await work(turn, FIRST)
                turn.ledger = first
                await work(turn, FIRST)
                assert await told(second) == [FIRST]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_unanswered_commit_tells_it_once(ledger: Ledger, when: str) -> None:
    await ledger.create("go")

    async def lose(name: str) -> None:
        if name == f"ledger.begin_round.{when}":
            raise CommitUnknown("lost")

    async with ledger.runner() as runner:
        turn = await runner.claimed()
        failpoints.install(lose)
        with pytest.raises(CommitUnknown):
            await turn.begin(compaction=FIRST)
        failpoints.install(None)
        await turn.begin(compaction=FIRST)
    assert await told(ledger) == [FIRST]


async def test_an_interrupted_request_tells_nothing(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await ledger.send(interrupt())
        assert (await turn.begin(compaction=FIRST)).interrupted
    assert await told(ledger) == []


async def test_clients_read_it_as_the_official_client_does(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.begin(compaction=FIRST)
        await turn.say("done")
    (entry,) = [entry for entry in await ledger.log() if entry["type"] == COMPACTED]
    event = BetaManagedAgentsAgentThreadContextCompactedEvent.model_validate(entry, strict=False)
    assert (event.id, event.type) == (FIRST, COMPACTED)
    assert event.processed_at is not None
    request = session_pb2.ListEventsRequest(session_id=ledger.thread.session_id, types=[COMPACTED])
    with serving(CallContext("req", WORKSPACE)):
        listed = await ledger.sessions.ListEvents(request, None)
    assert len(listed.data) == 1
