"""A provider call as operators see it: a span and metrics with the GenAI names, and no content."""

import asyncio
import time
from collections.abc import Awaitable

import msgspec

from foundation import measures, telemetry
from foundation.json import members
from services.runner.adapter import Answer, ProviderFailure
from services.runner.execution import Interrupted
from services.runner.turn import Turn

OPERATION = "chat"
PROVIDER = "anthropic"
"""The dialect that is spoken, whoever speaks it."""

_STRING = msgspec.json.Decoder(str)
_CHARS_MAX = 256


async def call(turn: Turn, calling: Awaitable[Answer]) -> Answer:
    """The answer of a call that begins here; what it raises, it raises."""
    model = turn.claim.runtime.model
    attributes = {
        "gen_ai.operation.name": OPERATION,
        "gen_ai.provider.name": PROVIDER,
        "gen_ai.request.model": model,
        "gen_ai.conversation.id": turn.thread.session_id,
    }
    began = time.perf_counter()
    error = ""
    try:
        with telemetry.span(f"{OPERATION} {model}", telemetry.SpanKind.CLIENT, attributes) as span:
            answer = await calling
            if span.is_recording():
                _describe(span, answer)
    except ProviderFailure as failure:
        error = failure.kind
        raise
    except (asyncio.CancelledError, Interrupted):
        error = "cancelled"
        raise
    except Exception as other:
        error = type(other).__name__
        raise
    finally:
        seconds = time.perf_counter() - began
        measures.MODEL_DURATION.record(seconds, OPERATION, PROVIDER, model, error)
    record = measures.MODEL_TOKENS.record
    record(input_tokens(answer), OPERATION, PROVIDER, model, "input")
    record(answer.usage.output_tokens, OPERATION, PROVIDER, model, "output")
    return answer


def input_tokens(answer: Answer) -> int:
    """All tokens of the request, as the conventions count them: with those of the cache."""
    usage = answer.usage
    cached = usage.cache_read_input_tokens + usage.cache_creation_input_tokens
    return usage.input_tokens + cached


def _describe(span: telemetry.Span, answer: Answer) -> None:
    usage, envelope = answer.usage, members(answer.envelope)
    span.set_attribute("gen_ai.response.finish_reasons", [answer.stop_reason])
    for name, member in (("gen_ai.response.id", "id"), ("gen_ai.response.model", "model")):
        raw = bytes(envelope.get(member, msgspec.Raw()))
        if raw.startswith(b'"'):
            span.set_attribute(name, _STRING.decode(raw)[:_CHARS_MAX])
    span.set_attribute("gen_ai.usage.input_tokens", input_tokens(answer))
    span.set_attribute("gen_ai.usage.output_tokens", usage.output_tokens)
    span.set_attribute("gen_ai.usage.cache_read.input_tokens", usage.cache_read_input_tokens)
    span.set_attribute("gen_ai.usage.cache_write.input_tokens", usage.cache_creation_input_tokens)
