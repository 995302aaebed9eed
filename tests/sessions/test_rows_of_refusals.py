"""Every family of routes has its hand-written rows of bad input."""

from collections.abc import Sequence
from typing import Any

from tests.definitions import test_agents, test_environments
from tests.sessions import test_refused, test_refused_events

FAMILIES: dict[str, list[Sequence[Any]]] = {
    "agents": [test_agents.BAD, test_agents.CALLS],
    "environments": [test_environments.BAD, test_environments.CALLS],
    "sessions": [test_refused.CREATE, test_refused.UPDATE, test_refused.LIST],
    "events": [test_refused_events.EVENTS, test_refused_events.RAW, test_refused_events.LISTS],
    "threads": [test_refused.THREADS],
    "streams": [test_refused_events.STREAMS],
    "headers": [test_refused_events.HEADERS],
    "idempotency keys": [test_refused_events.KEYS],
}
"""The tables of each family. Each row is one request on the wire with its status, error type and
the path that the message names; the tests beside the tables compare what is stored."""

ROWS_MIN = 5
ALL_MIN = 60


def test_every_family_has_its_rows() -> None:
    counts = {name: sum(map(len, tables)) for name, tables in FAMILIES.items()}
    assert min(counts.values()) >= ROWS_MIN, counts
    assert sum(counts.values()) - counts["idempotency keys"] >= ALL_MIN, counts
