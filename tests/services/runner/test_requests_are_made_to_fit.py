"""What the context authority needs for a request is brought: counts, summaries, and what the
provider refused. All of it is bounded, and an interrupt ends all of it."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, cast

import pytest
from counterfoil.context.v1 import context_pb2
from counterfoil.journal.v1 import journal_pb2
from counterfoil.ledger.v1 import turn_pb2
from counterfoil.transcript.v1 import transcript_pb2
from counterfoil.types.v1 import usage_pb2

from foundation import ids
from services.runner import faults, preparing
from services.runner.adapter import Answer, MessagesAdapter, Piece, ProviderFailure, UnknownDelta
from services.runner.asking import Asker
from services.runner.authorities import GiveUp
from services.runner.execution import Interrupted
from services.runner.history import Writer
from services.runner.preparing import Refused
from tests.services.runner.owner import THREAD, Surroundings

TOO_LARGE = ProviderFailure("overflow", "too large", retryable=False)
LIMIT = context_pb2.REFUSAL_REASON_COMPACTION_LIMIT
COUNTED = context_pb2.CountNeeded(body=b"count me", body_digest=b"d" * 32, betas=["b"])
FAILED, ANSWERED, CLOSED = "failed", "answered", "ambiguous"


def prepared(name: str = "1", compaction_id: str = "") -> context_pb2.PreparedRequest:
    snapshot = context_pb2.SnapshotSummary(id=f"snap_{name}", request_digest=bytes(32))
    body = b"request " + name.encode()
    return context_pb2.PreparedRequest(snapshot=snapshot, body=body, compaction_id=compaction_id)


def needs_summary(plan: str = "plan_1") -> context_pb2.SummaryNeeded:
    return context_pb2.SummaryNeeded(plan_id=plan, request=prepared("summary"))


def refusal(reason: "context_pb2.RefusalReason.ValueType") -> context_pb2.Refusal:
    return context_pb2.Refusal(
        reason=reason, input_tokens_estimate=9, input_tokens_limit=5, window_tokens=8
    )


def answer(text: str, *, stop_reason: str = "end_turn", tokens: int = 3) -> Answer:
    return Answer(
        blocks=(b'{"type":"text","text":"%s"}' % text.encode(),),
        envelope=b"{}",
        stop_reason=stop_reason,
        usage=usage_pb2.ModelUsage(input_tokens=tokens, output_tokens=1),
        provider_request_id="req_1",
    )


Made = (
    context_pb2.PreparedRequest
    | context_pb2.Refusal
    | context_pb2.CountNeeded
    | context_pb2.SummaryNeeded
)


@dataclass
class Context:
    """Answers PrepareRequest as it is told, the last answer for ever."""

    answers: list[Made]
    asked: list[context_pb2.PrepareRequestRequest] = field(
        default_factory=list[context_pb2.PrepareRequestRequest]
    )

    async def PrepareRequest(
        self, request: context_pb2.PrepareRequestRequest, **options: float
    ) -> context_pb2.PrepareRequestResponse:
        kept = context_pb2.PrepareRequestRequest()
        kept.CopyFrom(request)
        self.asked.append(kept)
        made = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        response = context_pb2.PrepareRequestResponse()
        match made:
            case context_pb2.PreparedRequest():
                response.prepared.CopyFrom(made)
            case context_pb2.Refusal():
                response.refused.CopyFrom(made)
            case context_pb2.CountNeeded():
                response.count_needed.CopyFrom(made)
            case _:
                response.summary_needed.CopyFrom(made)
        return response


@dataclass
class Provider:
    """Answers as it is told, the last answer for ever; `None` never comes."""

    answers: list[Answer | ProviderFailure | None]
    count: int | None = 42
    on_call: Callable[[], object] = lambda: None
    bodies: list[bytes] = field(default_factory=list[bytes])
    counted: list[tuple[bytes, list[str]]] = field(default_factory=list[tuple[bytes, list[str]]])

    async def call(
        self,
        body: bytes,
        *,
        stream: bool,
        on_piece: Callable[[Piece], None],
        betas: Sequence[str] = (),
    ) -> Answer:
        self.bodies.append(body)
        self.on_call()
        made = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if made is None:
            return await asyncio.Future[Answer]()
        if isinstance(made, ProviderFailure):
            raise made
        return made

    async def count_tokens(self, body: bytes, betas: Sequence[str] = ()) -> int | None:
        self.counted.append((body, list(betas)))
        self.on_call()
        return await asyncio.Future[int]() if self.count == -1 else self.count


class Stored:
    """Takes every entry."""

    async def append(self, entry_id: str, *_: object, **__: object) -> transcript_pb2.Entry:
        return transcript_pb2.Entry(id=entry_id)


@dataclass
class Ledger:
    """Takes every attempt, and keeps what was said."""

    interrupted: bool = False
    begun: list[turn_pb2.BeginRoundRequest] = field(
        default_factory=list[turn_pb2.BeginRoundRequest]
    )

    async def BeginRound(
        self, request: turn_pb2.BeginRoundRequest, **options: float
    ) -> turn_pb2.BeginRoundResponse:
        kept = turn_pb2.BeginRoundRequest()
        kept.CopyFrom(request)
        self.begun.append(kept)
        return turn_pb2.BeginRoundResponse(interrupted=self.interrupted)


@dataclass
class Scene:
    owner: Surroundings
    context: Context
    provider: Provider
    ledger: Ledger
    asker: Asker
    ends: dict[str, str]
    """How provider calls were said to have ended."""

    async def ended(self) -> list[str]:
        """How each provider call of the turn ended, in its order."""
        found = sorted(
            await self.owner.operations(), key=lambda one: one.started_at.ToNanoseconds()
        )
        return [self.ends.get(one.id) or _state(one) for one in found]


def _state(operation: journal_pb2.Operation) -> str:
    name = journal_pb2.OperationState.Name(operation.state)
    return name.removeprefix("OPERATION_STATE_").lower()


def _listened(journal: Any) -> dict[str, str]:
    complete, ends = journal.CompleteModelCall, dict[str, str]()

    async def completed(
        request: journal_pb2.CompleteModelCallRequest, **options: float
    ) -> journal_pb2.CompleteModelCallResponse:
        response = await complete(request, **options)
        ends[request.operation_id] = f"{FAILED} {request.failure}" if request.failure else ANSWERED
        return response

    journal.CompleteModelCall = completed
    return ends


def scene(
    owner: Surroundings,
    answers: Sequence[Made],
    provided: Sequence[Answer | ProviderFailure | None] = (answer("hi"),),
) -> Scene:
    context, ledger = Context(list(answers)), Ledger()
    provider = Provider(list(provided))
    to = owner.authorities
    authorities = replace(to, turns=cast(Any, ledger), context=cast(Any, context))
    adapter = cast(MessagesAdapter, cast(Any, provider))
    asker = Asker(authorities, adapter, owner.turn, cast(Writer, cast(Any, Stored())))
    return Scene(owner, context, provider, ledger, asker, _listened(to.journal))


async def test_the_provider_counts_when_the_authority_asks(owner: Surroundings) -> None:
    played = scene(owner, [COUNTED, prepared()])
    await played.asker.ask(0)
    assert played.provider.counted == [(b"count me", ["b"])]
    first, second = played.context.asked
    assert not first.HasField("count")
    assert second.count == context_pb2.TokenCount(body_digest=b"d" * 32, input_tokens=42)
    assert (first.attempt, first.transcript_head) == (second.attempt, second.transcript_head)


async def test_a_count_that_does_not_come_is_said(owner: Surroundings) -> None:
    played = scene(owner, [COUNTED, prepared()])
    played.provider.count = None
    await played.asker.ask(0)
    assert played.context.asked[1].count.input_tokens == 0
    assert played.context.asked[1].count.body_digest == b"d" * 32


async def test_a_summary_is_a_journaled_call_of_its_own(owner: Surroundings) -> None:
    played = scene(
        owner, [needs_summary(), COUNTED, prepared()], [answer("Goals", tokens=7), answer("hi")]
    )
    await played.asker.ask(0)
    assert played.provider.bodies == [b"request summary", b"request 1"]
    _, second, third = played.context.asked
    assert (second.summary.plan_id, second.summary.text) == ("plan_1", "Goals")
    assert third.summary == second.summary
    operations = {one.id: one for one in await owner.operations()}
    written = operations[second.summary.operation_id]
    assert (_state(written), written.snapshot_id) == ("completed", "snap_summary")
    assert played.ends == {written.id: ANSWERED}
    assert len(operations) == 2
    (begun,) = played.ledger.begun
    assert [one.input_tokens for one in begun.summary_usage] == [7]
    assert owner.turn.summary_usage == []


async def test_a_text_of_several_blocks_is_one_text(owner: Surroundings) -> None:
    thought = b'{"type":"thinking","thinking":"hm","signature":"s"}'
    blocks = (b'{"type":"text","text":"a"}', thought, b'{"type":"text","text":"b"}')
    given = Answer(blocks, b"{}", "end_turn", usage_pb2.ModelUsage(), "req_1")
    played = scene(owner, [needs_summary(), prepared()], [given, answer("hi")])
    await played.asker.ask(0)
    assert played.context.asked[1].summary.text == "a\n\nb"
    journal = owner.authorities.journal
    # Ended with this text; with another one it would be refused.
    known = played.context.asked[1].summary.operation_id
    request = journal_pb2.CompleteModelCallRequest(
        fence=owner.turn.fence,
        scope=journal_pb2.RoundScope(
            turn_id="turn_1", round=0, attempt=played.context.asked[1].attempt
        ),
        operation_id=known,
        outcome=journal_pb2.MODEL_CALL_OUTCOME_ANSWERED,
        answer_digest=sha256(b"a\n\nb").digest(),
    )
    await journal.CompleteModelCall(request)


FAILURE = ProviderFailure("overloaded", "busy", retryable=True)
FAILURE.usage = usage_pb2.ModelUsage(input_tokens=5)


@pytest.mark.parametrize(
    ("given", "end", "tokens"),
    [
        (FAILURE, f"{FAILED} overloaded", [5]),
        (TOO_LARGE, f"{FAILED} overflow", []),
        (UnknownDelta(), f"{FAILED} unknown_delta", []),
        (answer("cut", stop_reason="max_tokens"), ANSWERED, [3]),
        (answer("no", stop_reason="refusal"), ANSWERED, [3]),
        (answer("full", stop_reason="model_context_window_exceeded"), ANSWERED, [3]),
        (answer("x" * 262_145), ANSWERED, [3]),
    ],
)
async def test_a_summary_that_is_not_whole_is_none(
    owner: Surroundings, given: Answer | ProviderFailure, end: str, tokens: list[int]
) -> None:
    played = scene(owner, [needs_summary(), prepared()], [given, answer("hi")])
    await played.asker.ask(0)
    said = played.context.asked[1].summary
    assert (said.plan_id, said.text) == ("plan_1", "")
    assert (await played.ended())[0] == end
    assert [one.input_tokens for one in played.ledger.begun[0].summary_usage] == tokens


async def test_a_summary_has_little_time(
    owner: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "SUMMARY_SECONDS_MAX", 0.2)
    played = scene(owner, [needs_summary(), prepared()], [None, answer("hi")])
    await played.asker.ask(0)
    assert played.context.asked[1].summary.text == ""
    assert (await played.ended())[0] == f"{FAILED} timeout"


async def test_each_plan_has_its_own_call(owner: Surroundings) -> None:
    played = scene(
        owner,
        [needs_summary("plan_1"), needs_summary("plan_2"), prepared()],
        [answer("one"), answer("two"), answer("hi")],
    )
    await played.asker.ask(0)
    assert [one.summary.text for one in played.context.asked] == ["", "one", "two"]
    assert len({one.id for one in await owner.operations()}) == 3


@pytest.mark.parametrize("needed", [COUNTED, needs_summary()])
async def test_an_authority_that_keeps_asking_ends_the_claim(
    owner: Surroundings, needed: Made
) -> None:
    played = scene(owner, [needed])
    with pytest.raises(GiveUp):
        await played.asker.ask(0)
    assert len(played.context.asked) <= 8
    assert len(played.provider.bodies) <= 1
    assert played.ledger.begun == []


@pytest.mark.parametrize("needed", [COUNTED, needs_summary()])
async def test_an_interrupt_ends_what_is_brought(owner: Surroundings, needed: Made) -> None:
    played = scene(owner, [needed, prepared()], [None])
    played.provider.count = -1
    played.provider.on_call = owner.turn.interrupt.set
    with pytest.raises(Interrupted):
        await asyncio.wait_for(played.asker.ask(0), 10)
    assert played.ledger.begun == []
    assert await played.ended() == ([CLOSED] if needed != COUNTED else [])


@pytest.mark.parametrize("needed", [COUNTED, needs_summary()])
async def test_nothing_is_brought_after_an_interrupt(owner: Surroundings, needed: Made) -> None:
    played = scene(owner, [needed, prepared()])
    owner.turn.interrupt.set()
    with pytest.raises(Interrupted):
        await played.asker.ask(0)
    assert (played.provider.bodies, played.provider.counted) == ([], [])


async def test_a_stream_lost_before_a_summary_brings_none(owner: Surroundings) -> None:
    """The attempt begins without one, and then waits for the stream as any other does."""
    played = scene(owner, [needs_summary(), prepared()])
    journal, attached = cast(Any, owner.authorities.journal), owner.turn.attached
    start = journal.StartModelCall
    lost: list[str] = []

    async def losing(request: journal_pb2.StartModelCallRequest, **options: float) -> object:
        response = await start(request, **options)
        if not lost:
            attached.clear()
            lost.append(request.operation_id)
        else:
            attached.set()
        return response

    journal.StartModelCall = losing
    asks = asyncio.create_task(played.asker.ask(0))
    await asyncio.wait_for(asks, 10)
    assert played.provider.bodies == [b"request 1"]
    assert played.context.asked[1].summary == context_pb2.ModelSummary(
        plan_id="plan_1", operation_id=lost[0]
    )


async def test_a_refused_request_is_asked_as_a_smaller_one(owner: Surroundings) -> None:
    played = scene(
        owner, [prepared("1"), prepared("2"), prepared("3")], [TOO_LARGE, TOO_LARGE, answer("hi")]
    )
    await played.asker.ask(0)
    refused = [one.overflowed_snapshot_id for one in played.context.asked]
    assert refused == ["", "snap_1", "snap_2"]
    assert [one.attempt.number for one in played.ledger.begun] == [1, 2, 3]
    assert await played.ended() == [f"{FAILED} overflow", f"{FAILED} overflow", "started"]


async def test_a_smaller_request_may_be_repeated_unstreamed(owner: Surroundings) -> None:
    played = scene(
        owner,
        [prepared("1"), prepared("2"), prepared("3")],
        [TOO_LARGE, UnknownDelta(), answer("hi")],
    )
    await played.asker.ask(0)
    asked = [(one.overflowed_snapshot_id, one.stream) for one in played.context.asked]
    assert asked == [("", True), ("snap_1", True), ("snap_1", False)]


async def test_three_smaller_requests_are_enough(owner: Surroundings) -> None:
    played = scene(owner, [prepared("1")], [TOO_LARGE])
    with pytest.raises(Refused) as caught:
        await played.asker.ask(0)
    assert caught.value.refusal.reason == LIMIT
    assert len(played.provider.bodies) == 4
    assert await played.ended() == [f"{FAILED} overflow"] * 4


async def test_other_failures_are_not_asked_again_here(owner: Surroundings) -> None:
    played = scene(owner, [prepared("1"), prepared("2")], [TOO_LARGE, FAILURE])
    with pytest.raises(ProviderFailure) as caught:
        await played.asker.ask(0)
    assert caught.value is FAILURE
    assert len(played.provider.bodies) == 2


@pytest.mark.parametrize("reason", [LIMIT, context_pb2.REFUSAL_REASON_INPUT_TOO_LARGE])
async def test_the_authority_has_the_last_word(
    owner: Surroundings, reason: "context_pb2.RefusalReason.ValueType"
) -> None:
    played = scene(owner, [prepared("1"), refusal(reason)], [TOO_LARGE])
    with pytest.raises(Refused) as caught:
        await played.asker.ask(0)
    assert caught.value.refusal.reason == reason
    error = faults.refused(owner.turn, caught.value.refusal).session_error.error
    expected = "compaction_limit_reached_error" if reason == LIMIT else "model_request_failed_error"
    assert error.WhichOneof("error") == expected
    assert "This turn was taken out of the history" in error.message


async def test_a_compaction_is_told_with_the_request_that_it_made_possible(
    owner: Surroundings,
) -> None:
    played = scene(owner, [prepared("1"), prepared("2", "ckpt_1")], [TOO_LARGE, answer("hi")])
    await played.asker.ask(0)
    event_id = ids.derived("event", "compaction", THREAD.thread_id, "ckpt_1")
    assert [one.compaction_event_id for one in played.ledger.begun] == ["", event_id]


async def test_what_a_summary_cost_is_not_lost_with_an_interrupted_request(
    owner: Surroundings,
) -> None:
    played = scene(owner, [needs_summary(), prepared()], [answer("Goals", tokens=7)])
    played.ledger.interrupted = True
    with pytest.raises(Interrupted):
        await played.asker.ask(0)
    assert [one.input_tokens for one in owner.turn.summary_usage] == [7]
