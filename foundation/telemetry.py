"""Traces. One call is one trace across processes, and spans hold ids and sizes, never content.

Without `OTEL_EXPORTER_OTLP_ENDPOINT` nothing is recorded, sent or carried, and a span costs less
than a microsecond. OpenTelemetry's own variables choose sampling, headers and resource attributes.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine, Generator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import Context as TaskContext
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from foundation.errors import Failure, name_of, surface_of

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

__all__ = ["Span", "SpanKind"]

TRACEPARENT = "traceparent"
"""Name under which a trace travels: W3C Trace Context."""

Attributes = Mapping[str, str | int | bool]

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_FLUSH_S = 2.0

_propagator = TraceContextTextMapPropagator()
NOTHING = nullcontext(INVALID_SPAN)
"""The span of a block that is not recorded."""

_empty = Context()


class _State:
    """Where spans of this process go; module-wide, because spans begin everywhere."""

    provider: "TracerProvider | None" = None
    tracer: Tracer | None = None


def configure(service_name: str, exporter: "SpanExporter | None" = None) -> None:
    """Records spans from now on and sends them in batches, if an endpoint is set.

    A given `exporter` gets every span at once instead. `OTEL_SERVICE_NAME` wins over
    `service_name`. Call `shutdown` at the end.
    """
    if exporter is None and not any(os.environ.get(name) for name in _ENDPOINTS):
        return
    # Imported only where it is used: together they take a quarter of a second.
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    shutdown()
    provider = TracerProvider(resource=resource(service_name), shutdown_on_exit=False)
    provider.add_span_processor(_sending() if exporter is None else SimpleSpanProcessor(exporter))
    _State.provider, _State.tracer = provider, provider.get_tracer("counterfoil")


def resource(service_name: str) -> "Resource":
    """This process, for whoever reads what it records."""
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource

    return Resource.create({SERVICE_NAME: os.environ.get("OTEL_SERVICE_NAME") or service_name})


def _sending() -> Any:
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    return BatchSpanProcessor(OTLPSpanExporter())


def shutdown() -> None:
    """Sends what is left, for 2 s at most, and records nothing more."""
    provider, _State.provider, _State.tracer = _State.provider, None, None
    if provider is not None:
        # The exporter's own time limits count each attempt; a collector that is away must not keep
        # the process.
        sending = threading.Thread(target=provider.shutdown, name="telemetry", daemon=True)
        sending.start()
        sending.join(_FLUSH_S)


def recording() -> bool:
    """Whether spans of this process go anywhere."""
    return _State.tracer is not None


def span(
    name: str,
    kind: SpanKind = SpanKind.INTERNAL,
    attributes: Attributes | None = None,
    *,
    parent: Context | None = None,
) -> AbstractContextManager[Span]:
    """A block's span, current inside it; below the current one unless `parent` is given.

    An exception marks it by reason or class: its text could hold content.
    """
    if _State.tracer is None:
        return NOTHING
    return _recorded(_State.tracer, name, kind, attributes, parent)


def span_below(
    name: str, kind: SpanKind, attributes: Attributes | None = None
) -> AbstractContextManager[Span]:
    """The same where a span is recorded already; else nothing."""
    if _State.tracer is None or not trace.get_current_span().is_recording():
        return NOTHING
    return _recorded(_State.tracer, name, kind, attributes, None)


@contextmanager
def span_apart(
    name: str, kind: SpanKind, *, parent: Context | None = None
) -> Generator[Span | None]:
    """A span that `current` makes current for single steps; None when nothing is recorded.

    For what yields in between: a context around a yield would be the consumer's, too.
    """
    if _State.tracer is None:
        yield None
        return
    begun = _State.tracer.start_span(name, context=parent, kind=kind)
    try:
        yield begun
    except Exception as error:
        _mark(begun, kind, error)
        raise
    finally:
        begun.end()


def current(chosen: Span | None) -> AbstractContextManager[object]:
    """Makes a span current for a block; with None, no span is."""
    if _State.tracer is None:
        return NOTHING
    return trace.use_span(
        INVALID_SPAN if chosen is None else chosen,
        record_exception=False,
        set_status_on_exception=False,
    )


def inject(carrier: MutableMapping[str, str]) -> None:
    """Adds the current trace to outgoing metadata."""
    if _State.tracer is not None:
        _propagator.inject(carrier)


def extract(carrier: Mapping[str, str]) -> Context | None:
    """The trace that came with a call; one without a trace begins one of its own."""
    if _State.tracer is None:
        return None
    return _propagator.extract(carrier, context=_empty)


def traceparent() -> str:
    """The current trace as text, to be stored with work that goes on later; empty without one."""
    carrier: dict[str, str] = {}
    inject(carrier)
    return carrier.get(TRACEPARENT, "")


def detached(work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
    """A task that belongs to no call, whoever wakes it: no trace, no caller, no deadline."""
    return asyncio.get_running_loop().create_task(work, name=name, context=TaskContext())


@contextmanager
def _recorded(
    tracer: Tracer,
    name: str,
    kind: SpanKind,
    attributes: Attributes | None,
    parent: Context | None,
) -> Generator[Span]:
    with tracer.start_as_current_span(
        name,
        context=parent,
        kind=kind,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as begun:
        try:
            yield begun
        except Exception as error:
            _mark(begun, kind, error)
            raise


def _mark(begun: Span, kind: SpanKind, error: Exception) -> None:
    if isinstance(error, Failure):
        begun.set_attribute("error.type", name_of(error.reason))
        if kind == SpanKind.SERVER and surface_of(error.reason).http_status < 500:
            return  # the caller's mistake, not ours
    else:
        begun.set_attribute("error.type", type(error).__name__)
    begun.set_status(StatusCode.ERROR)
