"""Spans in memory, and the traces that they make."""

import asyncio
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext


class Spans(InMemorySpanExporter):
    """Every span that ended."""

    def __init__(self) -> None:
        super().__init__()
        self._come = asyncio.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._come.set()
        return super().export(spans)

    async def ended(self, name: str, number: int = 1) -> None:
        """Returns when so many spans of a name have ended: what clients see comes a moment
        before."""
        async with asyncio.timeout(10):
            while sum(span.name == name for span in self.get_finished_spans()) < number:
                self._come.clear()
                await self._come.wait()

    def traces(self) -> "list[Trace]":
        """Everything so far, by trace, in the order of their beginnings."""
        found: dict[int, list[ReadableSpan]] = {}
        for span in sorted(self.get_finished_spans(), key=lambda span: span.start_time or 0):
            found.setdefault(context_of(span).trace_id, []).append(span)
        return [Trace(spans) for spans in found.values()]

    def traces_with(self, name: str) -> "list[Trace]":
        """The traces with a span of that name."""
        return [trace for trace in self.traces() if trace.all(name)]


class Trace:
    """The spans of one trace."""

    def __init__(self, spans: list[ReadableSpan]) -> None:
        self.spans = spans
        self.names = {span.name for span in spans}
        self._by_id = {context_of(span).span_id: span for span in spans}

    @property
    def id(self) -> str:
        return f"{context_of(self.spans[0]).trace_id:032x}"

    def all(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        found = self.all(name)
        assert len(found) == 1, (name, [span.name for span in self.spans])
        return found[0]

    def parent(self, span: ReadableSpan) -> ReadableSpan | None:
        """The span above; it must be known."""
        return None if span.parent is None else self._by_id[span.parent.span_id]

    def path(self, span: ReadableSpan) -> list[str]:
        """Names from the root to the span."""
        above = self.parent(span)
        return [*([] if above is None else self.path(above)), span.name]


def context_of(span: ReadableSpan) -> SpanContext:
    assert span.context is not None
    return span.context
