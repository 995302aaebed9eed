"""A log line names its request, trace, session and turn, as far as they are known."""

import json
import logging
import os
import subprocess
import sys
from typing import Any

import pytest
from counterfoil.journal.v1 import journal_pb2
from counterfoil.ledger.v1 import session_pb2, turn_pb2
from counterfoil.types.v1 import reference_pb2

from cli import logs
from foundation import telemetry
from foundation.rpc.context import CallContext, serving
from tests.support.processes import python_environment
from tests.telemetry.support import Spans

THREAD = reference_pb2.ThreadRef(workspace_id="w", session_id="sesn_1", thread_id="sthr_1")
FENCE = reference_pb2.Fence(thread=THREAD, epoch=1)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (session_pb2.SubmitEventsRequest(session_id="sesn_1"), {"session_id": "sesn_1"}),
        (
            turn_pb2.BeginRoundRequest(fence=FENCE, turn_id="turn_1"),
            {"session_id": "sesn_1", "turn_id": "turn_1"},
        ),
        (
            journal_pb2.StartModelCallRequest(
                fence=FENCE, scope=journal_pb2.RoundScope(turn_id="turn_1")
            ),
            {"session_id": "sesn_1", "turn_id": "turn_1"},
        ),
        (journal_pb2.TombstoneRequest(thread=THREAD), {"session_id": "sesn_1"}),
        (session_pb2.CreateSessionRequest(), {}),
        (object(), {}),
    ],
)
def test_a_call_names_what_it_is_about(request_: object, expected: dict[str, str]) -> None:
    with serving(CallContext("req_1", request=request_)):
        line = logs.add_call(None, "info", {"event": "x"})
    assert line == {"event": "x", "request_id": "req_1", **expected}


def test_a_line_keeps_the_ids_of_its_own() -> None:
    request = session_pb2.SubmitEventsRequest(session_id="sesn_1")
    with serving(CallContext("req_1", request=request)):
        line = logs.add_call(None, "info", {"session_id": "sesn_2", "request_id": "req_2"})
    assert line == {"session_id": "sesn_2", "request_id": "req_2"}


def test_outside_of_calls_nothing_is_added() -> None:
    assert logs.add_call(None, "info", {"event": "x"}) == {"event": "x"}


async def test_a_line_within_a_span_names_its_trace(spans: Spans) -> None:
    with telemetry.span("one"):
        line = logs.add_call(None, "info", {})
    (trace,) = spans.traces()
    assert line == {"trace_id": trace.id}


PROGRAM = """
import logging, structlog
from cli import logs
logs.configure({level!r})
for name in ("services.ledger", "httpx2", "counterfoil"):
    for level in (logging.DEBUG, logging.INFO, logging.WARNING):
        logging.getLogger(name).log(level, "said %s", level)
log = structlog.get_logger("counterfoil.x")
log.debug("ours"); log.info("ours"); log.warning("ours")
logging.getLogger("httpx2").setLevel(logging.DEBUG)
logging.getLogger("httpx2").debug("still too much")
try:
    raise ValueError("why")
except ValueError:
    log.exception("failed")
"""


@pytest.mark.parametrize("level", ["debug", "info", "warning"])
def test_lines_are_json_and_libraries_stay_quiet(level: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(level=level)],
        env=python_environment(ANTHROPIC_LOG="debug"),
        capture_output=True,
        text=True,
        check=True,
        cwd=os.getcwd(),
    )
    assert not done.stdout
    lines: list[dict[str, Any]] = [json.loads(line) for line in done.stderr.splitlines()]
    assert all(line["timestamp"].endswith("Z") for line in lines)
    assert "ValueError: why" in lines.pop()["exception"]
    said = [(line["event"], line["level"]) for line in lines]
    order = ["debug", "info", "warning"]
    least = order[order.index(level) :]
    numbers = {name: logging.getLevelNamesMapping()[name.upper()] for name in order}
    services = [(f"said {numbers[name]}", name) for name in least]
    others = [("said 30", "warning")] * 2
    assert said == [*services, *others, *(("ours", name) for name in least)]


def test_without_an_endpoint_nothing_is_recorded_or_carried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", raising=False)
    telemetry.configure("counterfoil-test")
    carrier: dict[str, str] = {}
    with telemetry.span("one") as span:
        assert not span.is_recording()
        telemetry.inject(carrier)
        assert telemetry.traceparent() == ""
    assert carrier == {}
    assert telemetry.extract({"traceparent": "00-" + "1" * 32 + "-" + "1" * 16 + "-01"}) is None
