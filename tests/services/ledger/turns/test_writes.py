"""What a turn's owner may write: repeats, gaps, what is in the transcript gets published."""

import pytest
from counterfoil.ledger.v1 import events_pb2, session_events_pb2, turn_pb2

from foundation import ids
from foundation.errors import Failure
from tests.services.ledger.turns.driver import Ledger, reason_of
from tests.services.ledger.turns.events import ALLOW, ASK, CUSTOM, PLATFORM, custom_result, message

PARK = turn_pb2.COMMIT_KIND_PARKED
DONE = turn_pb2.COMMIT_KIND_DONE
REFUSAL = session_events_pb2.STOP_REASON_TYPE_REFUSAL
EXHAUSTED = session_events_pb2.STOP_REASON_TYPE_RETRIES_EXHAUSTED


async def test_every_write_may_be_repeated(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        first = await turn.begin()
        assert (await turn.begin()).position == first.position
        request = turn.answer((PLATFORM, ALLOW))
        appended = await turn.append(request)
        assert (await turn.append(request)).position == appended.position
        entry = turn.results()
        told = await turn.progress(*turn.calls, entries=[entry])
        assert (await turn.progress(*turn.calls, entries=[entry])).position == told.position
        await turn.begin()
        final = turn.answer(text="hi", commit=DONE)
        done = await turn.append(final)
        again = await turn.append(final)
        assert (again.answer, again.position) == (turn_pb2.COMMIT_ANSWER_DONE, done.position)
    assert (await ledger.get()).usage.input_tokens == 20


async def test_a_late_repeat_begins_nothing(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.begin(1)
        await turn.begin(2)
        late = await turn.begin(1)
        assert not late.interrupted
        types = await ledger.types()
        assert types[-3:] == [
            "span.model_request_start", "span.model_request_end", "span.model_request_start"
        ]  # fmt: skip
        foreign = turn_pb2.BeginRoundRequest(
            fence=turn.fence,
            turn_id=turn.id,
            round=0,
            attempt=turn.attempt(),
            span_event_id="sevt_1",
        )
        foreign.attempt.epoch = 9
        assert await reason_of(ledger.turns.BeginRound(foreign, None)) == "INVALID_FIELD"


async def test_a_late_park_of_an_older_round_parks_nothing(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.ask((CUSTOM, ALLOW))
        await ledger.send(custom_result(turn.calls[0]))
        assert (await turn.commit(PARK)).answer == turn_pb2.COMMIT_ANSWER_CONTINUE
        await turn.ask((CUSTOM, ALLOW), entries=[turn.results()])
        turn.round = 0
        assert await reason_of(turn.commit(PARK)) == "GAP"


async def test_continue_is_for_the_current_claim_only(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        old = await runner.claimed()
        await old.ask((CUSTOM, ALLOW))
        await ledger.send(custom_result(old.calls[0]))
        assert (await old.commit(PARK)).answer == turn_pb2.COMMIT_ANSWER_CONTINUE
        runner.release(old, turn_pb2.RELEASE_REASON_FENCED)
        new = await runner.claimed()
        assert await reason_of(old.commit(PARK)) == "FENCED"
        assert [bool(call.answer_body) for call in new.claim.calls] == [True]


async def test_a_parked_answer_is_returned_after_the_turn_went_on(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.begin()
        request = turn.answer((CUSTOM, ALLOW), commit=PARK)
        await turn.append(request)
        await ledger.send(custom_result(turn.calls[0]))
        await runner.claimed()
        assert (await turn.append(request)).answer == turn_pb2.COMMIT_ANSWER_PARKED


async def test_skipped_entries_are_refused(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.begin()
        request = turn.answer((PLATFORM, ALLOW))
        del request.entries[0]
        assert await reason_of(ledger.turns.AppendRound(request, None)) == "GAP"
        turn.seq = 0
        await turn.append(turn.answer((PLATFORM, ALLOW)))
        unpublished = turn.results()
        assert await reason_of(turn.progress(entries=[unpublished])) == "GAP"
        assert await reason_of(turn.commit(DONE, unpublished)) == "GAP"
        stray = turn.entry(turn_pb2.ENTRY_KIND_ANSWER)
        stray.seq = unpublished.seq
        await turn.progress(*turn.calls)
        assert await reason_of(turn.commit(DONE, stray)) == "GAP"
        assert await reason_of(turn.commit(DONE)) == "GAP"
        turn.seq = unpublished.seq - 1
        partial = turn.results()
        del partial.operation_ids[:]
        assert await reason_of(turn.progress(entries=[partial])) == "GAP"


async def test_another_entry_at_a_recorded_place_is_refused(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.ask((PLATFORM, ALLOW))
        turn.seq = 0
        other = turn.entry(turn_pb2.ENTRY_KIND_INPUT, name="other")
        assert await reason_of(turn.progress(entries=[other])) == "DIGEST_MISMATCH"


async def test_another_result_for_a_published_call_is_refused(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.ask((PLATFORM, ALLOW))
        await turn.progress(*turn.calls, text="one")
        assert await reason_of(turn.progress(*turn.calls, text="two")) == "DIGEST_MISMATCH"


async def test_results_of_older_rounds_may_be_repeated(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.ask((PLATFORM, ALLOW))
        older = list(turn.calls)
        await turn.progress(*older, text="one")
        await turn.ask((PLATFORM, ALLOW), entries=[turn.results()])
        before = await ledger.position
        await turn.progress(*older, text="one")
        assert await ledger.position == before
        assert await reason_of(turn.progress(*older, text="two")) == "DIGEST_MISMATCH"


async def test_results_that_only_a_client_may_give(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.ask((CUSTOM, ALLOW), (PLATFORM, ASK))
        custom, asked = turn.calls
        assert await reason_of(turn.progress(custom, is_error=True)) == "GAP"
        assert await reason_of(turn.progress(asked)) == "GAP"
        unknown = turn_pb2.RoundCall(use_event_id="sevt_1", operation_id="op_1")
        assert await reason_of(turn.progress(unknown)) == "GAP"


async def test_an_answer_holds_answer_events_only(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.begin()
        request = turn.answer((CUSTOM, ALLOW))
        forged = turn_pb2.AppendRoundRequest()
        forged.CopyFrom(request)
        forged.events.append(
            events_pb2.Event(id="sevt_1", session_deleted=session_events_pb2.SessionDeleted())
        )
        assert await reason_of(ledger.turns.AppendRound(forged, None)) == "INVALID_FIELD"
        forged.CopyFrom(request)
        del forged.calls[:]
        assert await reason_of(ledger.turns.AppendRound(forged, None)) == "INVALID_FIELD"
        await turn.append(request)


@pytest.mark.parametrize(("stop", "name"), [(REFUSAL, "refusal"), (EXHAUSTED, "retries_exhausted")])
async def test_a_turn_that_does_not_end_well_is_idle_before_the_next(
    ledger: Ledger, stop: "session_events_pb2.StopReasonType.ValueType", name: str
) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await ledger.send(message("next"))
        before = await ledger.position
        detail = session_events_pb2.ErrorDetail(message="no")
        detail.model_request_failed_error.SetInParent()
        failed = events_pb2.Event(
            id=ids.new("event"), session_error=session_events_pb2.SessionError(error=detail)
        )
        errors = [failed] if stop == EXHAUSTED else []
        entry = turn.entry(turn_pb2.ENTRY_KIND_INPUT)
        await turn.commit(DONE, entry, stop=stop, errors=errors)
        await runner.claimed()
        assert await ledger.types(before) == [
            *["session.error" for _ in errors],
            "session.thread_status_idle",
            "session.usage",
            f"session.status_idle {name}",
            "session.thread_status_running",
            "session.status_running",
            "user.message",
        ]


async def test_names_that_text_columns_cannot_hold(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.begin()
        request = turn.answer((CUSTOM, ALLOW), commit=PARK)
        request.calls[0].name = "a\0b"
        await turn.append(request)
        await ledger.send(custom_result(turn.calls[0], "a\0b"))
        assert (await runner.claimed()).claim.calls[0].name == "a\0b"


async def test_writes_to_threads_that_do_not_exist(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        for field in ("workspace_id", "session_id", "thread_id"):
            request = turn_pb2.CommitTurnRequest(fence=turn.fence, turn_id=turn.id, round=-1)
            request.kind = DONE
            setattr(request.fence.thread, field, "other")
            assert await reason_of(ledger.turns.CommitTurn(request, None)) == "NOT_FOUND"


async def test_a_failure_carries_the_epoch_to_beat(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        old = await runner.claimed()
        runner.release(old, turn_pb2.RELEASE_REASON_FENCED)
        await runner.claimed()
        with pytest.raises(Failure) as caught:
            await old.begin()
        assert caught.value.metadata == {"epoch_max": "2"}
