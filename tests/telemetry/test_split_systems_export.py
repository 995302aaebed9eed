"""A split system is one trace, too, and its processes send it to a collector."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.chat import Chat
from tests.support.model import Model
from tests.support.postgres import SessionPostgres
from tests.support.system import system_of
from tests.support.zygote import Zygote


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Takes what processes send."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Span]] = []
        self._come = asyncio.Event()

    async def Export(self, request: Any, context: Any) -> Any:
        for resource in request.resource_spans:
            names = {one.key: one.value.string_value for one in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [(names["service.name"], span) for span in scope.spans]
        self._come.set()
        return trace_service_pb2.ExportTraceServiceResponse()

    async def whole(self, *services: str) -> dict[bytes, tuple[str, Span]]:
        """The spans by id of the first trace that all these services took part in, once every
        parent is there."""
        async with asyncio.timeout(30):
            while True:
                for trace in self._traces():
                    taking_part = {service for service, _ in trace.values()}
                    parents = {span.parent_span_id for _, span in trace.values()} - {b""}
                    if taking_part >= set(services) and parents <= trace.keys():
                        return trace
                self._come.clear()
                await self._come.wait()

    def _traces(self) -> list[dict[bytes, tuple[str, Span]]]:
        found: dict[bytes, dict[bytes, tuple[str, Span]]] = defaultdict(dict)
        for service, span in self.spans:
            found[span.trace_id][span.span_id] = service, span
        return list(found.values())


@pytest.fixture
async def collector() -> AsyncGenerator[tuple[Collector, str]]:
    server = grpc.aio.server()
    taking = Collector()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(taking, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield taking, f"http://127.0.0.1:{port}"
    await server.stop(0)


@pytest.mark.full
async def test_a_post_is_one_trace_across_processes(
    collector: tuple[Collector, str], zygote: Zygote, model: Model, postgres: SessionPostgres
) -> None:
    taking, endpoint = collector
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    async with system_of("split", zygote, model, postgres, **environment) as system:
        await system.start()
        chat = await Chat.open(system)
        await chat.say("hello")
        names = ("gateway", "ledger", "runner", "transcript", "context", "journal")
        trace = await taking.whole(*(f"counterfoil-{name}" for name in names))
    (chat_span,) = [span for _, span in trace.values() if span.name.startswith("chat ")]
    path: list[tuple[str, str]] = []
    service, span = trace[chat_span.span_id]
    while True:
        path.insert(0, (service.removeprefix("counterfoil-"), span.name))
        if not span.parent_span_id:
            break
        service, span = trace[span.parent_span_id]
    assert path == [
        ("gateway", "POST /v1/sessions/{session_id}/events"),
        ("ledger", "/counterfoil.ledger.v1.SessionService/SubmitEvents"),
        ("runner", "turn"),
        ("runner", chat_span.name),
    ]
