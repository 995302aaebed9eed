"""Sessions and their events, page by page."""

import json
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
        stub = session_pb2_grpc.SessionServiceStub(ledger.as_channel())
        while len(found) < wanted.limit:
            request.limit = min(wanted.limit - len(found), _SESSIONS_PAGE)
            page = await stub.ListSessions(request)
            found += [json.loads(encode(session)) for session in page.data]
            if not page.HasField("next_page"):
                break
            request.page = page.next_page
    output.rows(form, _named(form, found), _SESSION_COLUMNS, "There is no such session.")


async def list_events(settings: Settings, wanted: WantedEvents, form: Form) -> None:
    """Prints events. Raises Failure."""
    order = session_pb2.LIST_ORDER_DESC if wanted.newest_first else session_pb2.LIST_ORDER_ASC
    request = session_pb2.ListEventsRequest(
        session_id=wanted.session_id, order=order, types=wanted.types
    )
    found: list[Row] = []
    async with channel(settings, "ledger", settings.api_key.get_secret_value()) as ledger:
        stub = session_pb2_grpc.SessionServiceStub(ledger.as_channel())
        while len(found) < wanted.limit:
            request.limit = min(wanted.limit - len(found), _EVENTS_PAGE)
            page = await stub.ListEvents(request)
            found += [json.loads(event) for event in page.data]
            if not page.HasField("next_page"):
                break
            request.page = page.next_page
    if form is Form.TABLE:
        found = [{**event, "summary": summary(event)} for event in found]
    output.rows(form, found, _EVENT_COLUMNS, "There is no such event.")


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
