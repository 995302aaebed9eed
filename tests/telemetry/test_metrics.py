"""What is measured is listed, moves, is cheap to count, and holds no content."""

import asyncio
import re
import timeit
import urllib.request
from collections.abc import Generator
from typing import Any

import anthropic
import pytest
import structlog
from counterfoil.ledger.v1 import turn_pb2, turn_pb2_grpc
from counterfoil.types.v1 import reference_pb2
from opentelemetry.proto.collector.metrics.v1 import (
    metrics_service_pb2,
    metrics_service_pb2_grpc,
)

from foundation import measures, metrics
from foundation.errors import Failure
from foundation.settings import DEVELOPMENT_KEY
from gateway.exchange import Exchange
from gateway.observed import Seen
from services.ledger import lease_store
from services.ledger.counting import count
from tests.readme.documents import table_rows
from tests.services.ledger.turns.driver import eventually, open_ledger
from tests.support.chat import Chat, is_over, message
from tests.support.inside import inside
from tests.support.model import Model, script, text
from tests.support.postgres import SessionPostgres
from tests.support.system import free_ports, system_of
from tests.support.zygote import Zygote

PAGE = "docs/operating/telemetry.md"
CANARY = "canary-3f9c1e"
_LINE = re.compile(r"^([a-z_]+)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'([a-z_]+)="([^"]*)"')

Series = dict[str, list[tuple[dict[str, str], float]]]


async def scrape(address: str) -> tuple[str, Series]:
    """The page that Prometheus reads, and its samples by name."""

    def read() -> str:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
            return answer.read().decode()

    page = await asyncio.to_thread(read)
    found: Series = {}
    for line in page.splitlines():
        match = _LINE.match(line)
        if match is not None:
            labels = dict(_LABEL.findall(match[2] or ""))
            found.setdefault(match[1], []).append((labels, float(match[3])))
    return page, found


def total(series: Series, name: str, **labels: str) -> float:
    """The sum of a name's samples that have these labels."""
    samples = series.get(name, [])
    return sum(value for had, value in samples if labels.items() <= had.items())


@pytest.fixture
def address() -> Generator[str]:
    """Where this process's metrics are read."""
    yield metrics.configure("counterfoil-test", "127.0.0.1:0")
    metrics.shutdown()


def families(page: str) -> set[str]:
    found = re.findall(r"^# TYPE (\S+) ", page, re.MULTILINE)
    return {name for name in found if not name.startswith(("process_", "python_", "target_"))}


def test_the_page_lists_what_is_measured() -> None:
    rows = table_rows(PAGE, "## Metrics")
    listed = [(row[0], row[3], row[4]) for row in rows]
    assert listed == [
        (
            f"`{one.name}`",
            ", ".join(f"`{label}`" for label in one.labels),
            one.description,
        )
        for one in measures.ALL
    ]
    assert [row[2] for row in rows] == [one.kind for one in measures.ALL]


async def test_each_metric_moves_and_none_holds_content(
    address: str, postgres: SessionPostgres, model: Model
) -> None:
    await model.reset()
    async with inside(postgres, model.url) as (embedded, _):
        _, before = await scrape(address)
        async with anthropic.AsyncAnthropic(
            base_url=embedded.rest_url, api_key=DEVELOPMENT_KEY, max_retries=0
        ) as client:
            agent = await client.beta.agents.create(
                model="claude-sonnet-4-5", name=CANARY, system=CANARY
            )
            environment = await client.beta.environments.create(name=CANARY)
            session = await client.beta.sessions.create(
                agent=agent.id, environment_id=environment.id, title=CANARY
            )
            say: Any = [message(script({"content": [text(CANARY)], "hold": "held"}))]
            async with await client.beta.sessions.events.stream(session.id) as stream:
                await client.beta.sessions.events.send(session.id, events=say)
                await model.held("held")
                _, during = await scrape(address)
                await model.release("held")
                async for event in stream:
                    if event.type == "session.status_idle":
                        break
            with pytest.raises(anthropic.NotFoundError):
                await client.get(f"/v1/{CANARY}", cast_to=object)
            turns = turn_pb2_grpc.TurnServiceStub(embedded.kernel.channel("ledger"))
            threads: Any = await client.beta.sessions.threads.list(session.id)
            thread = reference_pb2.ThreadRef(
                workspace_id=await workspace_of(embedded.kernel),
                session_id=session.id,
                thread_id=threads.data[0].id,
            )
            old = turn_pb2.BeginRoundRequest(
                fence=reference_pb2.Fence(thread=thread, epoch=1),
                turn_id="turn_00000000000000000000000000",
                attempt=reference_pb2.Attempt(epoch=1, number=1),
                span_event_id="sevt_00000000000000000000000000",
            )
            with pytest.raises(Failure, match="is below"):
                await turns.BeginRound(old)
            page, after = await scrape(address)

    assert families(page) == {row[1].strip("`") for row in table_rows(PAGE, "## Metrics")}
    assert CANARY not in page
    assert DEVELOPMENT_KEY not in page
    assert embedded.kernel.service_key not in page

    def moved(name: str, **labels: str) -> float:
        return total(after, name, **labels) - total(before, name, **labels)

    assert moved("counterfoil_turns_total", outcome="done") == 1
    assert moved("counterfoil_fences_total", service="ledger") == 1
    route = "/v1/sessions/{session_id}/events"
    assert moved("counterfoil_http_requests_total", method="POST", route=route, status="200") == 1
    assert moved("counterfoil_http_requests_total", route="", status="404") == 1
    assert total(during, "counterfoil_streams_open", at="gateway") == 1
    assert total(during, "counterfoil_streams_open", at="ledger") == 1
    assert total(during, "counterfoil_runner_turns") == 1
    assert total(after, "counterfoil_runner_turns") == 0
    assert total(after, "counterfoil_queue_age_seconds") == 0
    pool = {"db_client_connection_pool_name": "ledger"}
    assert total(after, "db_client_connection_count", **pool) >= 0
    called = {"gen_ai_operation_name": "chat", "gen_ai_request_model": "claude-sonnet-4-5"}
    assert moved("gen_ai_client_operation_duration_seconds_count", **called) == 1
    for kind in ("input", "output"):
        assert moved("gen_ai_client_token_usage_sum", gen_ai_token_type=kind, **called) > 0


async def workspace_of(kernel: Any) -> str:
    database = await kernel.database("ledger")
    return await database.fetchval("SELECT workspace_id FROM ledger.sessions LIMIT 1")


async def test_a_loss_counts_as_a_takeover_and_a_corrupt_turn_as_a_quarantine(
    postgres: SessionPostgres,
) -> None:
    def counted() -> tuple[int, int, int]:
        given_up = measures.TURNS.cell("quarantined").value
        return measures.TAKEOVERS.total(), measures.QUARANTINES.total(), given_up

    async with postgres.database("ledger") as dsn, open_ledger(dsn) as ledger:
        ledger.lanes.subscribe(count)
        before = counted()
        await ledger.create("hello")
        async with ledger.runner() as runner:
            runner.release(await runner.claimed(), turn_pb2.RELEASE_REASON_DRAINING)
        async with ledger.runner() as runner:
            turn = await runner.claimed()
            runner.release(turn, turn_pb2.RELEASE_REASON_CORRUPT)

            async def quarantined() -> bool:
                return counted()[1] > before[1]

            await eventually(quarantined)
        assert [new - old for new, old in zip(counted(), before, strict=True)] == [1, 1, 1]


async def test_the_queue_age_is_how_long_the_oldest_turn_waits(
    address: str, postgres: SessionPostgres
) -> None:
    async with postgres.database("ledger") as dsn, open_ledger(dsn) as ledger:
        end = measures.QUEUE_AGE.watch_async(lambda: lease_store.queue_age(ledger.db))
        _, idle = await scrape(address)
        await ledger.create("hello")
        _, first = await scrape(address)
        _, second = await scrape(address)
        end()
    ages = [total(one, "counterfoil_queue_age_seconds") for one in (idle, first, second)]
    assert ages[0] == 0 < ages[1] < ages[2]


async def test_refusals_for_rate_count_apart() -> None:
    before = measures.RATE_LIMITED.total()
    scope = {"headers": [], "method": "BREW", "query_string": b"", "path": "/", "type": "http"}

    async def nothing(*_: Any) -> Any:
        return {"type": "http.disconnect"}

    async def refuse(exchange: Exchange) -> None:
        await exchange.start(429, [])

    for _ in range(2):
        await Seen().watch(Exchange(scope, nothing, nothing, "req_1"), refuse)
    assert measures.RATE_LIMITED.total() - before == 2
    assert measures.REQUESTS.cell("other", "", "429").value >= 2


def test_series_are_bounded() -> None:
    counter = metrics.Counter("x", "1", "x", "label")
    for number in range(metrics.SERIES_MAX + 10):
        counter.cell(str(number)).value += 1
    assert counter.total() == metrics.SERIES_MAX + 10
    assert counter.cell("one more") is counter.cell("and another")


def test_counting_costs_nothing_to_speak_of() -> None:
    cell = measures.TURNS.cell("done")

    def count() -> None:
        cell.value += 1

    number = 100_000
    best = min(timeit.repeat(count, number=number, repeat=5)) / number
    cell.value -= number * 5
    assert best < 2e-6, f"{best * 1e9:.0f} ns"


@pytest.mark.parametrize("address", ["9464", ":9464", "host:", "host:x", "host:65536"])
def test_a_wrong_address_is_named(address: str) -> None:
    with pytest.raises(ValueError, match="COUNTERFOIL_METRICS_ADDRESS: must be host:port"):
        metrics.configure("counterfoil-test", address)


def test_a_taken_address_stops_only_who_asked_for_it(address: str) -> None:
    with pytest.raises(OSError, match=address):
        metrics._serve(address, None, True)
    assert metrics._serve(address, None, False) == ""


class Receiver(metrics_service_pb2_grpc.MetricsServiceServicer):
    """Takes what processes send."""

    def __init__(self) -> None:
        self.names: dict[str, set[str]] = {}
        self.come = asyncio.Event()

    async def Export(self, request: Any, context: Any) -> Any:
        for resource in request.resource_metrics:
            names = {one.key: one.value.string_value for one in resource.resource.attributes}
            found = self.names.setdefault(names["service.name"], set())
            for scope in resource.scope_metrics:
                found |= {metric.name for metric in scope.metrics}
        self.come.set()
        return metrics_service_pb2.ExportMetricsServiceResponse()


EXPECTED = {
    "gateway": ("counterfoil.http.requests", "counterfoil.streams.open"),
    "ledger": ("counterfoil.turns", "counterfoil.queue.age", "db.client.connection.count"),
    "runner": ("gen_ai.client.operation.duration", "gen_ai.client.token.usage"),
    "journal": ("db.client.connection.count",),
}


@pytest.mark.full
async def test_each_process_of_a_split_system_is_scraped_and_sends(
    zygote: Zygote, model: Model, postgres: SessionPostgres
) -> None:
    import grpc

    server = grpc.aio.server()
    receiver = Receiver()
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(receiver, server)
    endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    environment = {
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_METRICS_INSECURE": "true",
        "OTEL_METRIC_EXPORT_INTERVAL": "200",
    }
    async with system_of("split", zygote, model, postgres, **environment) as system:
        addresses = {
            role.name: f"127.0.0.1:{port}"
            for role, port in zip(system.roles, free_ports(len(system.roles)), strict=True)
        }
        for role in system.roles:
            role.environment["COUNTERFOIL_METRICS_ADDRESS"] = addresses[role.name]
        await system.start()
        chat = await Chat.open(system)
        await chat.complete(["hello"], until=is_over)
        for role, names in EXPECTED.items():
            page, _ = await scrape(addresses[role])
            found = families(page)
            for name in names:
                assert any(name.replace(".", "_") in one for one in found), (role, name)
        async with asyncio.timeout(30):
            while not all(
                set(names) <= receiver.names.get(f"counterfoil-{role}", set())
                for role, names in EXPECTED.items()
            ):
                receiver.come.clear()
                await receiver.come.wait()
    await server.stop(0)


@pytest.mark.parametrize(("status", "level"), [(200, "debug"), (404, "info"), (0, "info")])
async def test_each_request_leaves_a_line_without_its_path(status: int, level: str) -> None:
    session = "sesn_01m8nkhr0se4096ab124a18021"
    scope = {"headers": [], "method": "GET", "query_string": b"", "path": f"/{CANARY}"}

    async def nothing(*_: Any) -> Any:
        return {"type": "http.disconnect"}

    async def serve(exchange: Exchange) -> None:
        exchange.route, exchange.subject = "/v1/sessions/{session_id}", session
        if status:
            await exchange.start(status, [])

    with structlog.testing.capture_logs() as lines:
        await Seen().watch(Exchange(scope, nothing, nothing, "req_1"), serve)
    (line,) = lines
    assert line.pop("seconds") >= 0
    assert line == {
        "event": "request",
        "log_level": level,
        "request_id": "req_1",
        "session_id": session,
        "method": "GET",
        "route": "/v1/sessions/{session_id}",
        "status": status,
    }
