"""One POST is one trace: gateway, ledger, SQL, the turn in the runner, the provider."""

from collections.abc import AsyncGenerator
from typing import Any

import anthropic
import pytest
from opentelemetry.trace import SpanKind, StatusCode

from cli.embedded import Embedded
from foundation.settings import DEVELOPMENT_KEY
from tests.support.chat import custom_tool, message, result
from tests.support.model import script, use
from tests.telemetry.support import Spans

COMMIT = "sql commit ledger.submit_events"
SUBMIT = "/counterfoil.ledger.v1.SessionService/SubmitEvents"
POST = "POST /v1/sessions/{session_id}/events"
STREAM = "GET /v1/sessions/{session_id}/events/stream"
TURN = [POST, SUBMIT, "turn"]
TURN_CALLS = {
    "/counterfoil.transcript.v1.TranscriptService/AppendEntry",
    "/counterfoil.context.v1.ContextService/PrepareRequest",
    "/counterfoil.ledger.v1.TurnService/BeginRound",
    "/counterfoil.journal.v1.JournalService/StartModelCall",
    "/counterfoil.journal.v1.JournalService/CompleteModelCall",
    "/counterfoil.ledger.v1.TurnService/AppendRound",
}


@pytest.fixture
async def client(embedded: Embedded) -> AsyncGenerator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(
        base_url=embedded.rest_url, api_key=DEVELOPMENT_KEY, max_retries=0
    ) as made:
        yield made


async def new_session(client: anthropic.AsyncAnthropic, *tools: dict[str, Any]) -> str:
    agent: Any = {"model": "claude-sonnet-4-5", "name": "traced", "tools": list(tools)}
    made = await client.beta.agents.create(**agent)
    environment = await client.beta.environments.create(name="traced")
    session = await client.beta.sessions.create(agent=made.id, environment_id=environment.id)
    return session.id


async def exchange(
    client: anthropic.AsyncAnthropic, session: str, *events: dict[str, Any]
) -> list[dict[str, Any]]:
    """Sends events in one POST; everything up to the next idle."""
    found: list[dict[str, Any]] = []
    async with await client.beta.sessions.events.stream(session) as stream:
        body: Any = list(events)
        await client.beta.sessions.events.send(session, events=body)
        async for event in stream:
            found.append(event.to_dict(mode="json"))
            if event.type == "session.status_idle":
                break
    return found


async def test_a_message_is_one_trace_from_the_post_to_the_provider(
    client: anthropic.AsyncAnthropic, spans: Spans
) -> None:
    session = await new_session(client)
    await exchange(client, session, message("hello"))
    await spans.ended("turn")

    (trace,) = spans.traces_with(POST)
    post = trace.one(POST)
    assert post.parent is None
    assert post.kind == SpanKind.SERVER
    assert trace.path(trace.one(SUBMIT)) == [POST, SUBMIT]
    assert trace.path(trace.one(COMMIT)) == [POST, SUBMIT, COMMIT]
    turn = trace.one("turn")
    assert trace.path(turn) == TURN
    assert turn.kind == SpanKind.CONSUMER

    # Everything that the runner did hangs below its turn, with its SQL below each call.
    assert trace.names >= TURN_CALLS
    for name in TURN_CALLS:
        for call in trace.all(name):
            assert trace.path(call) == [*TURN, name]
            assert call.kind == SpanKind.SERVER
    for span in trace.spans:
        if span.name.startswith("sql"):
            above = trace.parent(span)
            assert above is not None
            assert above.name.startswith("/counterfoil."), trace.path(span)
            assert span.attributes is not None
            assert span.attributes["db.system.name"] == "postgresql"
    for name in ("transcript.append", "journal.start_model_call", "ledger.append_round"):
        assert trace.all(f"sql commit {name}"), name
    assert all(span.status.status_code != StatusCode.ERROR for span in trace.spans)


async def test_the_provider_span_has_the_names_of_the_genai_conventions(
    client: anthropic.AsyncAnthropic, spans: Spans
) -> None:
    session = await new_session(client)
    await exchange(client, session, message("hello"))
    await spans.ended("turn")
    (trace,) = spans.traces_with(POST)
    chat = trace.one("chat claude-sonnet-4-5")
    assert trace.path(chat) == [*TURN, chat.name]
    assert chat.kind == SpanKind.CLIENT
    attributes = dict(chat.attributes or {})
    assert attributes.pop("gen_ai.usage.input_tokens")
    assert attributes.pop("gen_ai.usage.output_tokens")
    cached = ("gen_ai.usage.cache_write.input_tokens", "gen_ai.usage.cache_read.input_tokens")
    assert sum(int(str(attributes.pop(name))) for name in cached)
    assert str(attributes.pop("gen_ai.response.id")).startswith("msg_")
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-sonnet-4-5",
        "gen_ai.conversation.id": session,
        "gen_ai.response.finish_reasons": ("end_turn",),
        "gen_ai.response.model": "claude-sonnet-4-5",
    }


async def test_an_answer_resumes_its_turn_in_the_answers_own_trace(
    client: anthropic.AsyncAnthropic, spans: Spans
) -> None:
    session = await new_session(client, custom_tool("look"))
    text = script({"content": [use("look", text="x")]}, "done")
    events = await exchange(client, session, message(text))
    (asked,) = [event for event in events if event["type"] == "agent.custom_tool_use"]
    await exchange(client, session, result(asked["id"], "seen"))
    await spans.ended("turn", 2)

    first, second = spans.traces_with(POST)
    for trace in (first, second):
        assert trace.path(trace.one("turn")) == TURN
        assert len(trace.all("chat claude-sonnet-4-5")) == 1
    names = ("counterfoil.turn_id", "counterfoil.epoch")
    one, two = (dict(trace.one("turn").attributes or {}) for trace in (first, second))
    assert one[names[0]] == two[names[0]]
    assert one[names[1]] != two[names[1]]


async def test_a_queued_message_keeps_its_own_trace(
    client: anthropic.AsyncAnthropic, spans: Spans
) -> None:
    session = await new_session(client, custom_tool("look"))
    text = script({"content": [use("look", text="x")]}, "done")
    events = await exchange(client, session, message(text))
    (asked,) = [event for event in events if event["type"] == "agent.custom_tool_use"]
    sent: Any = [message("behind")]
    await client.beta.sessions.events.send(session, events=sent)
    await exchange(client, session, result(asked["id"], "seen"))
    await spans.ended("turn", 3)
    parked, queued, answering = spans.traces_with(POST)
    turns = [trace.one("turn").attributes or {} for trace in (parked, queued, answering)]
    assert turns[0]["counterfoil.turn_id"] == turns[2]["counterfoil.turn_id"]
    assert turns[1]["counterfoil.turn_id"] != turns[0]["counterfoil.turn_id"]


async def test_a_clients_own_trace_goes_on(client: anthropic.AsyncAnthropic, spans: Spans) -> None:
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    header = {"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"}
    session = await new_session(client)
    spans.clear()
    sent: Any = [message("hello")]
    await client.beta.sessions.events.send(session, events=sent, extra_headers=header)
    await spans.ended("turn")
    (trace,) = spans.traces_with(POST)
    assert trace.id == trace_id
    assert "turn" in trace.names


async def test_a_stream_has_a_span_that_ends_with_it_and_gathers_nothing(
    client: anthropic.AsyncAnthropic, spans: Spans
) -> None:
    session = await new_session(client)
    await exchange(client, session, message("hello"))
    name = "/counterfoil.ledger.v1.SessionService/StreamEvents"
    await spans.ended(STREAM)
    (stream,) = spans.traces_with(name)
    above = stream.parent(stream.one(name))
    assert above is not None
    assert above.name == STREAM
    assert above.parent is None
    # Only what opened the stream; what it lives on is read for all streams together.
    assert not [span for span in stream.spans if span.name.startswith("sql commit")]


async def test_spans_never_hold_content(client: anthropic.AsyncAnthropic, spans: Spans) -> None:
    session = await new_session(client)
    canary = "canary-4f1d"
    await exchange(client, session, message(f"say {canary}"))
    bad: Any = [{"type": "user.message", "content": [{"type": canary, canary: canary}]}]
    with pytest.raises(anthropic.BadRequestError):
        await client.beta.sessions.events.send(session, events=bad)
    await spans.ended("turn")
    for span in spans.get_finished_spans():
        assert canary not in span.to_json(), span.name
