"""The figures, their bars and aims: the only place where a bar stands. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

Better = Literal["lower", "higher"]


@dataclass(frozen=True)
class Figure:
    """One figure. `floor_is` says in words what `floor_of` computes from the floors of the same
    run; empty where there is nothing to compare with."""

    id: str
    row: str
    what: str
    unit: str
    better: Better
    bar: float | None
    aim: float | None
    floor_is: str = ""
    decisive: bool = False
    """Never to be missed, whatever else is."""

    def met(self, value: float) -> bool | None:
        """Whether the bar is met; None without a bar."""
        if self.bar is None:
            return None
        return value <= self.bar if self.better == "lower" else value >= self.bar

    def ratio(self, value: float, floor: float) -> float:
        """How many times worse than the floor; 1.0 is as good as the parts alone."""
        return value / floor if self.better == "lower" else floor / value


def _figure(
    id: str,
    what: str,
    unit: str,
    better: Better,
    bar: float | None = None,
    aim: float | None = None,
    *,
    row: str = "",
    floor_is: str = "",
    decisive: bool = False,
) -> Figure:
    return Figure(id, row or id, what, unit, better, bar, aim, floor_is, decisive)


FIGURES = (
    _figure(
        "gate_p50",
        "gate loop, 1 client, p50",
        "ms",
        "lower",
        25,
        16,
        row="gate",
        floor_is="10 durable inserts + 6 HTTP requests in a row",
        decisive=True,
    ),
    _figure(
        "gate_rate",
        "gate loops per second, saturated",
        "/s",
        "higher",
        100,
        150,
        row="gate",
        floor_is="17 concurrent commits + 6 saturated HTTP requests",
        decisive=True,
    ),
    _figure(
        "text_p50",
        "text turn, POST → final idle on SSE, p50",
        "ms",
        "lower",
        12,
        8,
        row="text",
        floor_is="5 durable inserts + 2 HTTP requests in a row",
    ),
    _figure(
        "text_p99",
        "text turn, POST → final idle on SSE, p99",
        "ms",
        "lower",
        30,
        20,
        row="text",
        floor_is="as p50",
    ),
    _figure(
        "append_many",
        "event appends through the ledger, 64 callers",
        "/s",
        "higher",
        8_000,
        25_000,
        row="append",
        floor_is="rows in batches of 20",
        decisive=True,
    ),
    _figure(
        "append_hot",
        "event appends, one hot session",
        "/s",
        "higher",
        2_000,
        10_000,
        row="append",
        floor_is="rows in batches of 20",
        decisive=True,
    ),
    _figure(
        "submit_many",
        "whole SubmitEvents calls (key, limits, admission, turn), 64 callers",
        "/s",
        "higher",
        row="append",
        floor_is="rows in batches of 20",
    ),
    _figure(
        "submit_hot",
        "whole SubmitEvents calls, one hot session",
        "/s",
        "higher",
        row="append",
        floor_is="rows in batches of 20",
    ),
    _figure(
        "fanout_p50",
        "commit → byte at the client, 100 streams, p50",
        "ms",
        "lower",
        5,
        2,
        row="fanout",
        floor_is="50 single SSE sends",
    ),
    _figure(
        "fanout_p99",
        "commit → byte at the client, 100 streams, p99",
        "ms",
        "lower",
        25,
        10,
        row="fanout",
        floor_is="100 single SSE sends",
    ),
    _figure(
        "stream_memory",
        "1,000 open streams, memory each",
        "kB",
        "lower",
        60,
        25,
        row="streams",
        floor_is="a stream of a bare ASGI server",
    ),
    _figure(
        "reconnect",
        "reconnect into a session of 10,000 events",
        "ms",
        "lower",
        300,
        120,
        row="reconnect",
        floor_is="reading 10,000 rows",
    ),
    _figure(
        "request_warm",
        "request from a 5 MB, 2,000-block transcript, warm",
        "ms",
        "lower",
        5,
        2,
        row="request",
        floor_is="SHA-256 of 5 MB + 1 durable insert",
    ),
    _figure(
        "request_cold",
        "request from a 5 MB, 2,000-block transcript, cold",
        "ms",
        "lower",
        40,
        15,
        row="request",
        floor_is="reading 5 MB + SHA-256 of it + 1 durable insert",
    ),
    _figure(
        "request_entries",
        "the same, cold, from a transcript that no process has prepared before",
        "ms",
        "lower",
        row="request",
        floor_is="as before",
    ),
    _figure(
        "reduce_warm",
        "reduce and materialize one more round: 10,000 entries against 10, warm",
        "x",
        "lower",
        2,
        1.2,
        row="reducing",
    ),
    _figure(
        "reduce_cold",
        "the same from nothing, 10,000 entries, against a plain read of their rows",
        "x",
        "lower",
        5,
        2,
        row="reducing",
    ),
    _figure(
        "reduce_entries",
        "the same where no process has kept anything",
        "x",
        "lower",
        row="reducing",
    ),
    _figure(
        "compaction",
        "a history of 10,000 entries replaced by a summary",
        "s",
        "lower",
        2,
        1,
        row="reducing",
    ),
    _figure(
        "long_session",
        "turn 10,000 of a session against turn 10",
        "x",
        "lower",
        2,
        1.2,
        row="long",
    ),
    _figure(
        "recovery",
        "kill -9 of everything → every session moves again",
        "s",
        "lower",
        5,
        2,
        row="recovery",
        floor_is="the same start with nothing to recover",
        decisive=True,
    ),
    _figure(
        "recovery_lost",
        "accepted inputs lost by it",
        "",
        "lower",
        0,
        0,
        row="recovery",
        decisive=True,
    ),
    _figure(
        "recovery_doubled",
        "inputs or answers doubled by it",
        "",
        "lower",
        0,
        0,
        row="recovery",
        decisive=True,
    ),
    _figure(
        "split_rate",
        "gate loops per second with separate processes over sockets",
        "/s",
        "higher",
        40,
        100,
        row="split",
        floor_is="25 saturated gRPC calls over a socket",
    ),
    _figure(
        "provider_cpu",
        "CPU of the provider transport per request",
        "ms",
        "lower",
        row="provider",
        floor_is="1 request of the light client (wall time)",
    ),
    _figure(
        "peer_p50",
        "peer: Restate (engine only), gate loop, 1 client, p50",
        "ms",
        "lower",
        row="peer",
    ),
    _figure(
        "peer_rate",
        "peer: Restate (engine only), gate loops per second, saturated",
        "/s",
        "higher",
        row="peer",
    ),
)

FLOORS: Mapping[str, tuple[str, str]] = {
    "insert": ("one durable PostgreSQL insert, p50", "ms"),
    "commits": ("concurrent durable commits (32 connections)", "/s"),
    "events": ("rows in batches of 20 (8 connections)", "/s"),
    "read": ("rows read in order, 10,000 of 600 B", "/s"),
    "read_5mb": ("reading 2,000 rows of 2.5 kB", "ms"),
    "sha_5mb": ("SHA-256 of 5 MB", "ms"),
    "grpc_local": ("unary call through the in-process channel of services, p50", "ms"),
    "grpc_socket": ("grpc.aio unary call over a socket, p50", "ms"),
    "grpc_rate": ("grpc.aio unary calls over a socket, 64 callers", "/s"),
    "asgi": ("raw ASGI request, 1 client, p50", "ms"),
    "asgi_rate": ("raw ASGI requests, 32 clients", "/s"),
    "sse_rate": ("SSE deliveries, single sends to 100 clients", "/s"),
    "sse_memory": ("an open stream of a bare ASGI server", "kB"),
    "idle_start": ("start of a server that has nothing to recover", "s"),
}
"""What is measured in the same run to compare with: text and unit by id."""

ROWS = tuple(dict.fromkeys(figure.row for figure in FIGURES))
"""What `ROWS=` selects, in the order in which they run."""

BY_ID = {figure.id: figure for figure in FIGURES}


_FLOOR: Mapping[str, Callable[[Mapping[str, float]], float]] = {
    "gate_p50": lambda f: 10 * f["insert"] + 6 * f["asgi"],
    "gate_rate": lambda f: 1 / (17 / f["commits"] + 6 / f["asgi_rate"]),
    "text_p50": lambda f: 5 * f["insert"] + 2 * f["asgi"],
    "text_p99": lambda f: 5 * f["insert"] + 2 * f["asgi"],
    "append_many": lambda f: f["events"],
    "append_hot": lambda f: f["events"],
    "submit_many": lambda f: f["events"],
    "submit_hot": lambda f: f["events"],
    "fanout_p50": lambda f: 50_000 / f["sse_rate"],
    "fanout_p99": lambda f: 100_000 / f["sse_rate"],
    "stream_memory": lambda f: f["sse_memory"],
    "reconnect": lambda f: 10_000_000 / f["read"],
    "request_warm": lambda f: f["sha_5mb"] + f["insert"],
    "request_cold": lambda f: f["read_5mb"] + f["sha_5mb"] + f["insert"],
    "request_entries": lambda f: f["read_5mb"] + f["sha_5mb"] + f["insert"],
    "recovery": lambda f: f["idle_start"],
    "split_rate": lambda f: f["grpc_rate"] / 25,
    "provider_cpu": lambda f: f["asgi"],
}


def floor_of(figure: str, floors: Mapping[str, float]) -> float | None:
    """What the parts alone would give for a figure; None where a part is missing."""
    formula = _FLOOR.get(figure)
    if formula is None:
        return None
    try:
        return formula(floors)
    except KeyError:
        return None
