"""A fork in the ledger: durable when admitted, silent while it is copied, first in its lane."""

from dataclasses import replace
from hashlib import sha256

import pytest
from counterfoil.ledger.v1 import session_pb2, turn_pb2
from counterfoil.types.v1 import reference_pb2

from foundation import ids
from foundation.rpc.context import CallContext, serving
from services.ledger import session_store
from tests.services.ledger.turns.driver import (
    FOREIGN,
    WORKSPACE,
    Ledger,
    Runner,
    Turn,
    eventually,
    reason_of,
)
from tests.services.ledger.turns.events import ALLOW, CUSTOM, interrupt, message

SETTLED = turn_pb2.COMMIT_KIND_SETTLED


async def talked(ledger: Ledger, *texts: str) -> list[reference_pb2.Head]:
    """Turns of text in the ledger's session; the transcript's head behind each."""
    await ledger.create()
    heads: list[reference_pb2.Head] = []
    async with ledger.runner() as runner:
        for text in texts:
            await ledger.send(message(text))
            turn = await runner.claimed()
            request = turn.answer(text=f"re {text}", commit=turn_pb2.COMMIT_KIND_DONE)
            await turn.begin()
            await turn.append(request)
            heads.append(reference_pb2.Head(seq=turn.seq, digest=request.answer_digest))
    return heads


async def fork_of(ledger: Ledger, at: str | None = None, workspace: str = WORKSPACE) -> Ledger:
    """The same ledger, looking at a fork of its session."""
    request = session_pb2.ForkSessionRequest(session_id=ledger.thread.session_id, at_event_id=at)
    with serving(CallContext("req", workspace)):
        session = (await ledger.sessions.ForkSession(request, None)).session
    return replace(ledger, thread=await session_store.home_of_session(ledger.db, session.id))


def copied(turn: Turn) -> turn_pb2.EntryRecord:
    """The last entry of the history, as it was copied."""
    seq = turn.claim.fork.head.seq
    id_ = ids.derived("entry", turn.id, seq)
    digest = sha256(id_.encode()).digest()
    return turn_pb2.EntryRecord(
        entry_id=id_, seq=seq, digest=digest, kind=turn_pb2.ENTRY_KIND_ANSWER
    )


async def finish(turn: Turn) -> turn_pb2.CommitTurnResponse:
    return await turn.commit(SETTLED, copied(turn))


async def test_a_claim_says_what_to_copy(ledger: Ledger) -> None:
    heads = await talked(ledger, "one", "two")
    fork = await fork_of(ledger)
    async with fork.runner() as runner:
        turn = await runner.claimed()
        claim = turn.claim
        assert claim.thread == fork.thread
        assert claim.fork == turn_pb2.ForkSource(thread=ledger.thread, head=heads[-1])
        assert (claim.round, claim.input.event_id, claim.input.body) == (-1, "", b"")
        assert claim.runtime.system == "be kind"
        assert (await finish(turn)).answer == turn_pb2.COMMIT_ANSWER_SETTLED
        assert (await finish(turn)).answer == turn_pb2.COMMIT_ANSWER_SETTLED
    assert await fork.log() == []


async def test_input_waits_for_the_history_and_runs_on_it(ledger: Ledger) -> None:
    (head,) = await talked(ledger, "one")
    fork = await fork_of(ledger)
    async with fork.runner() as runner:
        copying = await runner.claimed()
        await fork.send(message("first"))
        await fork.send(message("second"))
        running = ["session.thread_status_running", "session.status_running"]
        assert await fork.types() == ["user.message?", *running, "user.message?"]
        await finish(copying)
        first = await runner.claimed()
        assert not first.claim.HasField("fork")
        assert first.claim.transcript_head.seq == head.seq
        assert first.claim.transcript_head.digest == copied(copying).digest
        assert b"first" in first.claim.input.body
        await first.say("yes")
        assert b"second" in (await runner.claimed()).claim.input.body


async def test_an_interrupt_passes_over_the_copying(ledger: Ledger) -> None:
    await talked(ledger, "one")
    fork = await fork_of(ledger)
    async with fork.runner() as runner:
        copying = await runner.claimed()
        await fork.send(interrupt())
        assert await fork.types() == ["user.interrupt"]
        await fork.send(message("stop this"))
        await fork.send(interrupt())
        await finish(copying)
        assert (await runner.claimed()).claim.interrupted


@pytest.mark.parametrize("seqs", [(), (1,), (3,), (1, 2)])
async def test_only_the_last_copied_entry_ends_the_copying(
    ledger: Ledger, seqs: tuple[int, ...]
) -> None:
    await talked(ledger, "one")
    fork = await fork_of(ledger)
    async with fork.runner() as runner:
        turn = await runner.claimed()
        records = [copied(turn) for _ in seqs]
        for record, seq in zip(records, seqs, strict=True):
            record.seq = seq
        assert await reason_of(turn.commit(SETTLED, *records)) == "GAP"
        for kind in (turn_pb2.COMMIT_KIND_DONE, turn_pb2.COMMIT_KIND_PARKED):
            assert await reason_of(turn.commit(kind, copied(turn))) == "GAP"
        await finish(turn)


async def test_copying_that_fails_waits_for_input_and_is_tried_again_first(ledger: Ledger) -> None:
    await talked(ledger, "one")
    fork = await fork_of(ledger)
    async with fork.runner() as runner:
        for _ in range(2):
            runner.release(await claimed(runner, fork), turn_pb2.RELEASE_REASON_CORRUPT)
            await eventually(lambda: quarantined(fork))
            await fork.send(message("again"))
        turn = await claimed(runner, fork)
        assert turn.claim.HasField("fork")
        await finish(turn)
        assert b"again" in (await runner.claimed()).claim.input.body


async def claimed(runner: Runner, fork: Ledger) -> Turn:
    """The next claim; the dispatcher's own loop does not run in these tests."""
    await fork.dispatcher.rescan()
    return await runner.claimed()


async def quarantined(fork: Ledger) -> bool:
    state = await fork.db.fetchval(
        "SELECT state FROM ledger.turns WHERE session_id = $1 AND input_position = 0",
        fork.thread.session_id,
    )
    return state == turn_pb2.TURN_STATE_QUARANTINED


async def test_a_fork_of_a_fork_that_is_not_copied_yet_copies_the_same(ledger: Ledger) -> None:
    heads = await talked(ledger, "one")
    first = await fork_of(ledger)
    second = await fork_of(first)
    async with ledger.runner() as runner:
        turns = [await runner.claimed(), await runner.claimed()]
        sources = {turn.claim.thread.session_id: turn.claim.fork for turn in turns}
        assert set(sources) == {first.thread.session_id, second.thread.session_id}
        expected = turn_pb2.ForkSource(thread=ledger.thread, head=heads[0])
        assert list(sources.values()) == [expected, expected]
        for turn in turns:
            await finish(turn)
        third = await fork_of(second)
        turn = await runner.claimed()
        (of_second,) = [one for one in turns if one.claim.thread == second.thread]
        assert turn.claim.thread == third.thread
        assert turn.claim.fork.thread == second.thread
        assert turn.claim.fork.head.digest == copied(of_second).digest


async def erasable(ledger: Ledger) -> list[str]:
    found = await session_store.offer_erasures(ledger.db, 0, 16)
    return [thread.session_id for thread in found]


@pytest.mark.parametrize("how", ["copied", "deleted"])
async def test_a_deleted_source_is_kept_until_its_forks_are_copied_or_deleted(
    ledger: Ledger, how: str
) -> None:
    await talked(ledger, "one")
    fork = await fork_of(ledger)
    await ledger.delete()
    assert await reason_of(fork_of(ledger)) == "NOT_FOUND"
    source = ledger.thread.session_id
    assert source not in await erasable(ledger)
    if how == "deleted":
        await fork.delete()
    else:
        async with fork.runner() as runner:
            await finish(await claimed(runner, fork))
    assert source in await erasable(ledger)


async def test_an_erased_fork_leaves_no_rows(ledger: Ledger) -> None:
    await talked(ledger, "one")
    fork = await fork_of(ledger)
    await fork.delete()
    await fork.turns.FinishDeletion(turn_pb2.FinishDeletionRequest(thread=fork.thread), None)
    assert await ledger.db.fetchval("SELECT count(*) FROM ledger.forks") == 0


async def test_forks_of_other_workspaces_sessions_are_not_found(ledger: Ledger) -> None:
    await talked(ledger, "one")
    assert await reason_of(fork_of(ledger, workspace=FOREIGN)) == "NOT_FOUND"


async def test_a_turn_that_waits_for_clients_is_no_boundary(ledger: Ledger) -> None:
    (head,) = await talked(ledger, "one")
    async with ledger.runner() as runner:
        await ledger.send(message("two"))
        turn = await runner.claimed()
        await turn.ask((CUSTOM, ALLOW), commit=turn_pb2.COMMIT_KIND_PARKED)
        parked = (await ledger.log())[-1]
        assert parked["stop_reason"]["type"] == "requires_action"
        assert await reason_of(fork_of(ledger, parked["id"])) == "INVALID_FIELD"
        await ledger.send(interrupt())  # publicly over, and not settled
        idle = (await ledger.log())[-1]
        assert await reason_of(fork_of(ledger, idle["id"])) == "INVALID_FIELD"
        await fork_of(ledger)
        assert (await runner.claimed()).claim.fork.head == head
