"""Sessions and their events, page by page."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from counterfoil.ledger.v1 import session_pb2, session_pb2_grpc

from cli import output
from cli.operator import channel
from cli.output import Form, Row
from cli.summaries import summary
from foundation.json import encode, enum_literals
from foundation.settings import Settings

_SESSIONS_PAGE = 100
_EVENTS_PAGE = 1000

_SESSION_COLUMNS = {
    "id": "SESSION",
    "status": "STATUS",
    "created_at": "CREATED",
    "agent_name": "AGENT",
    "title": "TITLE",
}
_EVENT_COLUMNS = {"id": "EVENT", "processed_at": "PROCESSED", "type": "TYPE", "summary": "WHAT"}


@dataclass(frozen=True)
class Wanted:
    """Which sessions."""

    statuses: tuple[str, ...]
    agent_id: str
    archived: bool
    limit: int


@dataclass(frozen=True)
class WantedEvents:
    """Which events of a session."""

    session_id: str
    types: tuple[str, ...]
    newest_first: bool
    limit: int


async def list_sessions(settings: Settings, wanted: Wanted, form: Form) -> None:
    """Prints sessions. Raises Failure, and ValueError for a status that there is not."""
    request = session_pb2.ListSessionsRequest(
        include_archived=wanted.archived, statuses=[_status(name) for name in wanted.statuses]
    )
    if wanted.agent_id:
        request.agent_id = wanted.agent_id
    found: list[Row] = []
    async with channel(settings, "ledger", settings.api_key.get_secret_value()) as ledger:
        call = session_pb2_grpc.SessionServiceStub(ledger.as_channel()).ListSessions
        async for page in _pages(call, request, wanted.limit, _SESSIONS_PAGE):
            found += [json.loads(encode(session)) for session in page.data]
    output.rows(form, _named(form, found), _SESSION_COLUMNS, "There is no such session.")


async def fork(settings: Settings, session_id: str, at: str, title: str | None, form: Form) -> None:
    """Forks a session and prints the new one. Raises Failure."""
    request = session_pb2.ForkSessionRequest(
        session_id=session_id, at_event_id=at or None, title=title
    )
    async with channel(settings, "ledger", settings.api_key.get_secret_value()) as ledger:
        stub = session_pb2_grpc.SessionServiceStub(ledger.as_channel())
        made = json.loads(encode((await stub.ForkSession(request)).session))
    output.rows(form, _named(form, [made]), _SESSION_COLUMNS, "")


async def list_events(settings: Settings, wanted: WantedEvents, form: Form) -> None:
    """Prints events. Raises Failure."""
    order = session_pb2.LIST_ORDER_DESC if wanted.newest_first else session_pb2.LIST_ORDER_ASC
    request = session_pb2.ListEventsRequest(
        session_id=wanted.session_id, order=order, types=wanted.types
    )
    found: list[Row] = []
    async with channel(settings, "ledger", settings.api_key.get_secret_value()) as ledger:
        call = session_pb2_grpc.SessionServiceStub(ledger.as_channel()).ListEvents
        async for page in _pages(call, request, wanted.limit, _EVENTS_PAGE):
            found += [json.loads(event) for event in page.data]
    if form is Form.TABLE:
        found = [{**event, "summary": summary(event)} for event in found]
    output.rows(form, found, _EVENT_COLUMNS, "There is no such event.")


async def _pages(
    call: Callable[[Any], Awaitable[Any]], request: Any, limit: int, page_max: int
) -> AsyncGenerator[Any]:
    """Pages of a list, with `limit` items together."""
    while limit > 0:
        request.limit = min(limit, page_max)
        page = await call(request)
        yield page
        limit -= len(page.data)
        if not page.HasField("next_page"):
            return
        request.page = page.next_page


def _named(form: Form, found: list[Row]) -> list[Row]:
    """For a table, the agent's name as a cell of its own."""
    if form is Form.JSON:
        return found
    return [{**session, "agent_name": _agent_name(session)} for session in found]


def _agent_name(session: Row) -> Any:
    agent: Row = session["agent"]
    return agent["name"]


def _status(name: str) -> session_pb2.SessionStatus.ValueType:
    known = enum_literals(session_pb2.SessionStatus.DESCRIPTOR)
    if name not in known.values():
        raise ValueError(f"--status {name}: one of {', '.join(known.values())}")
    return session_pb2.SessionStatus.Value(f"SESSION_STATUS_{name.upper()}")
