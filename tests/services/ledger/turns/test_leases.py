"""Epochs, leases and takeovers: who may write, and when a turn is given up."""

import asyncio

import pytest
from counterfoil.ledger.v1 import session_pb2, turn_pb2

from foundation import failpoints
from foundation.storage import CommitUnknown, Unavailable
from services.ledger import admission, lease_store
from tests.services.ledger.turns.driver import (
    Ledger,
    Runner,
    Turn,
    eventually,
    open_ledger,
    reason_of,
)
from tests.services.ledger.turns.events import (
    ALLOW,
    CUSTOM,
    PLATFORM,
    custom_result,
    interrupt,
    message,
)

PARK = turn_pb2.COMMIT_KIND_PARKED
SETTLE = turn_pb2.COMMIT_KIND_SETTLED
FAILED = turn_pb2.RELEASE_REASON_FAILED
EXHAUSTED = "session.status_idle retries_exhausted"


async def _lose(ledger: Ledger, runner: Runner, turn: Turn) -> None:
    """The lease is freed without a commit."""
    runner.release(turn, FAILED)
    thread_id = turn.claim.thread.thread_id

    async def free() -> bool:
        sql = "SELECT lease_stream IS NULL FROM ledger.threads WHERE thread_id = $1"
        return bool(await ledger.db.fetchval(sql, thread_id))

    await eventually(free)


async def _more(ledger: Ledger, before: int) -> list[str]:
    """What comes into the log behind a position."""

    async def grown() -> bool:
        return await ledger.position > before

    await eventually(grown)
    return await ledger.types(before)


async def again(ledger: Ledger, runner: Runner, turn: Turn) -> Turn:
    """The lease is lost, and the pause after it is over."""
    await _lose(ledger, runner, turn)
    await _pause_over(ledger)
    return await runner.claimed()


async def _pause_over(ledger: Ledger) -> None:
    sql = "UPDATE ledger.threads SET claimable_at = now() WHERE thread_id = $1 RETURNING 1"
    await ledger.db.commit_one("test.pause", sql, ledger.thread.thread_id)
    await ledger.dispatcher.rescan()


async def test_a_takeover_raises_the_epoch_and_fences_the_predecessor(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        old = await runner.claimed()
        await old.begin()
        new = await again(ledger, runner, old)
        assert (new.claim.epoch, new.claim.takeover) == (2, True)
        assert await reason_of(old.begin(2)) == "FENCED"
        assert await reason_of(old.append(old.answer(text="late"))) == "FENCED"
        assert await reason_of(old.commit(PARK)) == "FENCED"
        before = await ledger.position
        await new.begin()
        assert await ledger.types(before) == ["span.model_request_end", "span.model_request_start"]
        assert (await ledger.log(before))[0]["is_error"] is True
        await new.say("hi")
    types = await ledger.types()
    assert types.count("user.message") == 1
    assert types.count("session.status_running") == 1


async def test_a_stored_answer_of_a_lost_owner_is_published_once(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        old = await runner.claimed()
        await old.begin()
        request = old.answer((CUSTOM, ALLOW))
        new = await again(ledger, runner, old)
        request.fence.CopyFrom(new.fence)
        first = await new.append(request)
        before = await ledger.position
        second = await new.append(request)
        assert (first.position, second.position) == (before, before)
        changed = turn_pb2.AppendRoundRequest()
        changed.CopyFrom(request)
        changed.answer_digest = b"x" * 32
        assert await reason_of(new.append(changed)) == "DIGEST_MISMATCH"
    assert (await ledger.get()).usage.input_tokens == 10


async def test_a_stream_that_breaks_frees_its_leases(dsn: str) -> None:
    async with open_ledger(dsn, free_after_s=0.01) as ledger:
        await ledger.create("go")
        async with ledger.runner() as runner:
            turn = await runner.claimed()
        async with ledger.runner() as runner:
            taken = await runner.claimed()
            assert (taken.id, taken.claim.epoch, taken.claim.takeover) == (turn.id, 2, True)


async def test_a_runner_that_attaches_again_keeps_what_it_holds(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
    async with ledger.runner(held=[turn.held]) as runner:
        assert list(runner.attached.kept) == [turn.held]
        await turn.say("still mine")
    async with ledger.runner(held=[turn.held]) as runner:
        assert not runner.attached.kept


async def test_a_heartbeat_renews_and_tells_of_lost_claims(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        runner.heartbeat()
        assert (await runner.receive()).WhichOneof("message") == "heartbeat"
        assert await lease_store.free_expired(ledger.db) == 0
        assert await lease_store.free_boots(ledger.db, "") == 1
        runner.heartbeat()
        assert (await runner.receive()).fenced == turn.held
        assert await reason_of(turn.begin()) == "FENCED"


async def test_an_expired_lease_is_free(ledger: Ledger) -> None:
    ledger.lanes.lease_ms = 1
    await ledger.create("go")
    async with ledger.runner() as runner:
        await runner.claimed()
        await asyncio.sleep(0.01)
        await ledger.dispatcher.rescan()
        assert (await runner.claimed()).claim.takeover


async def test_interrupts_reach_a_runner_of_another_process(dsn: str, ledger: Ledger) -> None:
    async with open_ledger(dsn) as other:
        loop = asyncio.create_task(other.dispatcher.run())
        await ledger.create("go")
        other.thread = ledger.thread
        async with other.runner() as runner:
            turn = await runner.claimed()
            await ledger.send(interrupt())
            runner.heartbeat()
            kinds = [await runner.receive(), await runner.receive()]
            told = [one for one in kinds if one.WhichOneof("message") == "interrupt"]
            assert [one.interrupt.turn_id for one in told] == [turn.id]
            await turn.commit(
                turn_pb2.COMMIT_KIND_INTERRUPTED, turn.entry(turn_pb2.ENTRY_KIND_INPUT)
            )
            await ledger.send(message("more"))
            await runner.claimed()
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)


async def test_two_processes_share_the_turns(dsn: str, ledger: Ledger) -> None:
    async with open_ledger(dsn) as other:
        for _ in range(12):
            await ledger.create("go")
        async with ledger.runner(capacity=6) as one, other.runner(capacity=6) as two:
            claims = [await runner.claimed() for runner in (one, two) for _ in range(6)]
            assert len({claim.id for claim in claims}) == 12
            assert {claim.claim.epoch for claim in claims} == {1}


async def test_a_claim_whose_commit_was_not_answered_is_freed(ledger: Ledger) -> None:
    await ledger.create()

    async def lose(name: str) -> None:
        if name == "ledger.submit_events.after":
            raise CommitUnknown("lost")

    async with ledger.runner() as runner:
        failpoints.install(lose)
        with pytest.raises(CommitUnknown):
            await ledger.send(message("go"))
        failpoints.install(None)
        turn = await runner.claimed()
        assert (turn.claim.epoch, turn.claim.takeover) == (2, True)
        assert await _takeovers(ledger) == 0


async def _takeovers(ledger: Ledger) -> int:
    """How many losses count against the turn."""
    sql = "SELECT takeovers FROM ledger.turns WHERE thread_id = $1 ORDER BY input_position LIMIT 1"
    return await ledger.db.fetchval(sql, ledger.thread.thread_id)


async def test_a_client_that_goes_while_its_commit_is_on_its_way_leaves_no_orphan(
    ledger: Ledger,
) -> None:
    """The deadline of SubmitEvents passes, or its client is gone, in the moment of the COMMIT."""
    await ledger.create()

    async def go(name: str) -> None:
        if name == "ledger.submit_events.after":
            raise asyncio.CancelledError

    async with ledger.runner() as runner:
        failpoints.install(go)
        with pytest.raises(asyncio.CancelledError):
            await ledger.send(message("go"))
        failpoints.install(None)
        turn = await runner.claimed()
        assert b"go" in turn.claim.input.body
        assert await _takeovers(ledger) == 0
        await turn.say("hi")


async def test_a_submit_that_wrote_nothing_takes_nothing_from_anybody(ledger: Ledger) -> None:
    await ledger.create()

    async def fail(name: str) -> None:
        if name == "ledger.submit_events.before":
            raise Unavailable("away")

    async with ledger.runner() as runner:
        failpoints.install(fail)
        with pytest.raises(Unavailable):
            await ledger.send(message("go"))
        failpoints.install(None)
        await ledger.send(message("go"))
        turn = await runner.claimed()
        await turn.say("hi")


@pytest.mark.parametrize("attached", [True, False])
async def test_a_release_that_the_database_does_not_take_is_kept(dsn: str, attached: bool) -> None:
    """Lost, it would count as a takeover, also for a drain."""
    away = True
    tried = asyncio.Event()

    async def fail(name: str) -> None:
        if away and name == "ledger.release_claim.before":
            tried.set()
            raise Unavailable("away")

    async with open_ledger(dsn, free_after_s=0.01) as ledger:
        await ledger.create("go")
        failpoints.install(fail)
        async with ledger.runner() as runner:
            turn = await runner.claimed()
            runner.release(turn, turn_pb2.RELEASE_REASON_UNAVAILABLE)
            await asyncio.wait_for(tried.wait(), 10)
            if attached:
                away = False
                runner.heartbeat(7)
                assert (await runner.receive()).heartbeat.number == 7
        away = False
        await ledger.dispatcher.rescan()
        sql = "SELECT lease_stream IS NULL AND ended = 2 FROM ledger.threads"
        assert await ledger.db.fetchval(sql)
        failpoints.install(None)


async def test_a_runner_that_drains_gets_nothing_more(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as draining, ledger.runner() as other:
        turn = await draining.claimed()
        draining.release(turn, turn_pb2.RELEASE_REASON_DRAINING)
        assert (await other.claimed()).id == turn.id
        await ledger.create("more")
        await ledger.create("and more")
        for _ in range(2):
            await other.claimed()
        assert await _takeovers(ledger) == 0


async def test_failures_in_a_row_pause_longer_and_longer(ledger: Ledger) -> None:
    """A fault of a second does not use up all attempts of every turn."""
    await ledger.create("go")
    sql = "SELECT extract(epoch FROM not_before - now())::float8 FROM ledger.turns"
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        pauses: list[float] = []
        for _ in range(6):
            await _lose(ledger, runner, turn)
            pauses.append(await ledger.db.fetchval(sql))
            if len(pauses) < 6:
                await _pause_over(ledger)
                turn = await runner.claimed()
    assert pauses == sorted(pauses)
    assert pauses[0] < 0.11
    assert 2 < pauses[-1] < 3.3


async def test_an_interrupted_turn_fails_without_pause(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await ledger.send(interrupt())
        assert (await runner.receive()).WhichOneof("message") == "interrupt"
        runner.release(turn, FAILED)
        assert (await runner.claimed()).claim.interrupted


async def test_erasures_go_to_every_runner_in_turn(ledger: Ledger) -> None:
    """One that is stuck delays a deletion; it does not stop it."""
    async with ledger.runner() as one, ledger.runner() as two:
        for _ in range(2):
            await ledger.create()
            await ledger.delete()
        threads = [(await runner.receive()).erasure.thread.thread_id for runner in (one, two)]
        assert len(set(threads)) == 2


async def test_a_claim_holds_the_input_only_until_a_round_was_published(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        assert b"go" in turn.claim.input.body
        await turn.ask((CUSTOM, ALLOW), commit=PARK)
        await ledger.send(custom_result(turn.calls[0], "answer"))
        resumed = await runner.claimed()
        assert (resumed.claim.input.event_id, resumed.claim.input.body) == (
            turn.claim.input.event_id,
            b"",
        )
        assert b"answer" in resumed.claim.calls[0].answer_body


async def test_the_answers_to_a_round_fit_in_one_message(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "BODIES_BYTES_MAX", 1500)
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.ask((CUSTOM, ALLOW), (CUSTOM, ALLOW), commit=PARK)
        one, two = turn.calls
        assert await reason_of(ledger.send(custom_result(one, "x" * 1500))) == "TOO_LARGE"
        await ledger.send(custom_result(one, "x" * 800))
        assert await reason_of(ledger.send(custom_result(two, "x" * 800))) == "TOO_LARGE"
        await ledger.send(custom_result(two, "short"))
        assert len((await runner.claimed()).claim.calls) == 2
    assert await reason_of(ledger.send(message("x" * 1500))) == "TOO_LARGE"


async def test_nothing_is_written_while_there_is_nothing_to_do(ledger: Ledger) -> None:
    await ledger.create()
    written: list[str] = []

    async def note(name: str) -> None:
        written.append(name)

    async with ledger.runner() as runner:
        failpoints.install(note)
        for _ in range(3):
            await ledger.dispatcher.rescan()
        runner.heartbeat()
        await runner.receive()
        failpoints.install(None)
    assert {name.rpartition(".")[0] for name in written} == {"ledger.heartbeat"}


async def test_a_wake_up_while_a_claimer_ends_is_not_lost(ledger: Ledger) -> None:
    """Commits follow each other without a pause: each claim is made at once, by no rescan."""
    async with ledger.runner(capacity=64) as runner:
        for _ in range(20):
            await ledger.create("go")
            async with asyncio.timeout(0.9):
                await runner.claimed()


async def test_after_too_many_losses_the_turn_is_quarantined(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.ask((CUSTOM, ALLOW), (PLATFORM, ALLOW))
        calls = turn.calls
        for _ in range(5):
            turn = await again(ledger, runner, turn)
        before = await ledger.position
        await _lose(ledger, runner, turn)
        await _pause_over(ledger)
        assert await _more(ledger, before) == [
            "user.custom_tool_result",
            "agent.tool_result",
            "session.error",
            "session.thread_status_idle",
            "session.usage",
            EXHAUSTED,
        ]
        texts = [one["content"][0]["text"] for one in (await ledger.log(before))[:2]]
        assert ["Nothing was executed" in texts[0], "may have run" in texts[1]] == [True, True]
        assert (await ledger.get()).status == session_pb2.SESSION_STATUS_IDLE
        assert await reason_of(ledger.send(custom_result(calls[0]))) == "ACTION_REFUSED"

        # The next input gives it one more attempt, and goes behind it.
        await ledger.send(message("again"))
        settling = await runner.claimed()
        assert settling.claim.state == turn_pb2.TURN_STATE_SETTLING
        assert settling.claim.takeover
        before = await ledger.position
        await _lose(ledger, runner, settling)
        await _pause_over(ledger)
        assert (await _more(ledger, before))[-1] == EXHAUSTED

        # And so does an operator.
        request = turn_pb2.ReleaseTurnRequest(turn_id=turn.id)
        await ledger.turns.ReleaseTurn(request, None)
        settling = await runner.claimed()
        settling.calls = calls
        await settling.commit(SETTLE, settling.results())
        following = await runner.claimed()
        assert b"again" in following.claim.input.body
        await following.say("at last", entries=[following.entry(turn_pb2.ENTRY_KIND_INPUT)])
        assert await reason_of(ledger.turns.ReleaseTurn(request, None)) == "WRONG_STATE"


async def test_progress_resets_the_count_of_losses(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        for _ in range(5):
            turn = await again(ledger, runner, turn)
        await turn.ask((PLATFORM, ALLOW))
        calls = turn.calls
        for _ in range(5):
            turn = await again(ledger, runner, turn)
        turn.calls = calls
        await turn.progress(*calls)
        await turn.say("done", entries=[turn.results()])
    assert (await ledger.types())[-1] == "session.status_idle end_turn"


async def test_drains_and_outages_do_not_count(ledger: Ledger) -> None:
    await ledger.create("go")
    for epoch in range(1, 9):
        async with ledger.runner() as runner:
            turn = await runner.claimed()
            assert (turn.claim.epoch, turn.claim.takeover) == (epoch, epoch > 1)
            runner.release(turn, turn_pb2.RELEASE_REASON_DRAINING)
            runner.heartbeat()
            assert (await runner.receive()).WhichOneof("message") == "heartbeat"
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        runner.release(turn, turn_pb2.RELEASE_REASON_UNAVAILABLE)

        async def paused() -> bool:
            sql = "SELECT claimable_at > now() + interval '0.2 s' FROM ledger.threads"
            return bool(await ledger.db.fetchval(sql))

        await eventually(paused)


async def test_a_corrupt_transcript_quarantines_at_once(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await ledger.send(message("next"))
        before = await ledger.position
        runner.release(turn, turn_pb2.RELEASE_REASON_CORRUPT)
        assert (await _more(ledger, before))[-1] == EXHAUSTED
        assert await ledger.db.fetchval("SELECT claimable_at FROM ledger.threads") is None


async def test_releasing_a_turn_that_is_not_quarantined(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        request = turn_pb2.ReleaseTurnRequest(turn_id=turn.id)
        assert await reason_of(ledger.turns.ReleaseTurn(request, None)) == "WRONG_STATE"
        unknown = turn_pb2.ReleaseTurnRequest(turn_id="turn_1")
        assert await reason_of(ledger.turns.ReleaseTurn(unknown, None)) == "NOT_FOUND"


async def test_a_runner_gets_no_more_than_it_asked_for(ledger: Ledger) -> None:
    for _ in range(3):
        await ledger.create("go")
    async with ledger.runner(capacity=2) as runner:
        first, second = await runner.claimed(), await runner.claimed()
        assert first.claim.thread != second.claim.thread
        await first.say("hi")
        third = await runner.claimed()
        assert third.claim.thread not in (first.claim.thread, second.claim.thread)
