"""What the event, stream and header rules refuse: status, error type, path; nothing is stored."""

import json
from typing import Any

import httpx2

from tests.support.chat import Chat, Event, message, result
from tests.support.system import System

INVALID = "invalid_request_error"
NOBODY = "sesn_00000000000000000000000000"
HELLO = message("hello")
PNG: Event = {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}
UNKNOWN_USE = "sevt_00000000000000000000000000"


def _said(*blocks: Any) -> Event:
    return {"type": "user.message", "content": list(blocks)}


def _pictured(**changes: Any) -> Event:
    return _said({"type": "image", "source": {**PNG, **changes}})


EVENTS: list[tuple[Any, str]] = [
    ({"events": []}, "events: "),
    ({"events": None}, "events: "),
    ({"events": HELLO}, "events: "),
    ({"events": [HELLO] * 1001}, "events: "),
    ({"events": [HELLO], "surprise": 1}, "surprise: "),
    ({"event": [HELLO]}, "event: "),
    ([HELLO], "expected an object"),
    ({"events": ["hello"]}, "events.0: "),
    ({"events": [{}]}, "events.0.type: "),
    ({"events": [{"type": "user.nothing"}]}, "events.0.type: "),
    ({"events": [{"type": "agent.message", "content": []}]}, "events.0.type: "),
    ({"events": [{"type": 7}]}, "events.0.type: "),
    ({"events": [HELLO, {**HELLO, "colour": "blue"}]}, "events.1.colour: "),
    ({"events": [{**HELLO, "id": "sevt_mine"}]}, "events.0.id: "),
    ({"events": [{**HELLO, "processed_at": None}]}, "events.0.processed_at: "),
    ({"events": [_said()]}, "events.0.content: "),
    ({"events": [message("")]}, "events.0.content.0.text: "),
    ({"events": [{"type": "user.message", "content": "hello"}]}, "events.0.content: "),
    ({"events": [_said({"type": "audio"})]}, "events.0.content.0.type: "),
    ({"events": [_said({"type": "text", "text": 7})]}, "events.0.content.0.text: "),
    ({"events": [_said({"type": "redacted"})]}, "events.0.content.0"),
    ({"events": [_pictured(media_type="image/tiff")]}, "events.0.content.0.source.media_type: "),
    ({"events": [_pictured(data="not base64!")]}, "events.0.content.0.source.data: "),
    ({"events": [_pictured(type="url", url="ftp://x")]}, "events.0.content.0.source."),
    ({"events": [_pictured(type="disk")]}, "events.0.content.0.source.type: "),
    ({"events": [result(UNKNOWN_USE, "late")]}, "events.0.custom_tool_use_id: "),
    ({"events": [HELLO, result(UNKNOWN_USE, "late")]}, "events.1.custom_tool_use_id: "),
    ({"events": [result("", "x")]}, "events.0.custom_tool_use_id: "),
    ({"events": [{**result(UNKNOWN_USE, "x"), "is_error": "no"}]}, "events.0.is_error: "),
    (
        {"events": [{"type": "user.tool_confirmation", "tool_use_id": "u", "result": "maybe"}]},
        "events.0.result: ",
    ),
    ({"events": [{"type": "user.tool_confirmation", "tool_use_id": "u"}]}, "events.0.result: "),
    (
        {"events": [{"type": "user.interrupt", "session_thread_id": "sthr_other"}]},
        "events.0.session_thread_id: ",
    ),
    ({"events": [{"type": "user.define_outcome", "description": "d"}]}, "events.0.rubric: "),
]
"""Bodies of a send → how the message begins; each is a 400."""

LISTS: list[tuple[str, str]] = [
    ("limit=0", "limit: "),
    ("limit=1001", "limit: "),
    ("limit=-1", "limit: "),
    ("limit=1.5", "limit: "),
    ("limit=1&limit=2", "limit: "),
    ("order=up", "order: "),
    ("page=nonsense", "page: "),
    ("page=" + "x" * 1025, "page: "),
    ("types[]=", "types"),
    ("&".join(["types[]=a"] * 101), "types"),
    ("created_at[gt]=2026-13-01T00:00:00Z", "created_at[gt]: "),
    ("created_at[lt]=now", "created_at[lt]: "),
    ("typed=true", "typed: "),
    ("session_id=other", "session_id: "),
]
"""Queries of the event list → how the message begins; each is a 400."""

STREAMS: list[tuple[str, dict[str, str], str]] = [
    ("event_deltas[]=agent.tool_use", {}, "event_deltas"),
    ("&".join(["event_deltas[]=agent.message"] * 101), {}, "event_deltas"),
    ("position_after=-1", {}, "position_after: "),
    ("position_after=first", {}, "position_after: "),
    ("thread_id=sthr_other", {}, "thread_id: "),
    ("typed=true", {}, "typed: "),
    ("", {"last-event-id": "nonsense"}, "Last-Event-ID: "),
    ("", {"last-event-id": f"{NOBODY}:1"}, "Last-Event-ID: "),
]
"""Queries and headers of a stream → how the message begins; each is a 400 in JSON."""

HEADERS: list[tuple[str, str, dict[str, str], int, str, str]] = [
    ("GET", "/events", {"authorization": ""}, 401, "authentication_error", ""),
    ("GET", "/events", {"authorization": "Bearer wrong"}, 401, "authentication_error", ""),
    ("GET", "/events", {"authorization": "Basic eDp5"}, 401, "authentication_error", ""),
    ("POST", "/events", {"authorization": "Bearer wrong"}, 401, "authentication_error", ""),
    ("GET", "/events/stream", {"authorization": ""}, 401, "authentication_error", ""),
    ("POST", "/events", {"idempotency-key": ""}, 400, INVALID, "Idempotency-Key: "),
    ("POST", "/events", {"idempotency-key": "k" * 256}, 400, INVALID, "Idempotency-Key: "),
    ("POST", "/events", {"idempotency-key": "tab\there"}, 400, INVALID, "Idempotency-Key: "),
    ("POST", "", {"idempotency-key": "k" * 256}, 400, INVALID, "Idempotency-Key: "),
    ("POST", "/archive", {"idempotency-key": "k" * 256}, 400, INVALID, "Idempotency-Key: "),
    ("PUT", "/events", {}, 405, INVALID, "PUT is not allowed"),
    ("DELETE", "/events", {}, 405, INVALID, "DELETE is not allowed"),
    ("POST", "/events/stream", {}, 405, INVALID, "POST is not allowed"),
]
"""Requests with a bad header or verb: path behind the session's → status, type, beginning."""

KEYS = [row for row in HEADERS if "idempotency-key" in row[2]]
"""Those of them that are about the key."""

RAW: list[tuple[bytes, str]] = [
    (b"", "events: "),
    (b"{", "the document ends"),
    (b'{"events": [{"type": "user.message", "content": [}]}', "events.0.content"),
    (b'{"events": [], "events": []}', "events: is a duplicate key"),
    (b'{"events": [NaN]}', "events.0: NaN"),
    (b'{"events": "\xff"}', "events: is not valid UTF-8"),
    (b'{"events": ' + b"[" * 200 + b"]" * 200 + b"}", "events"),
]
"""Bodies of a send that are not proper JSON → how the message begins; each is a 400."""


class Session:
    """A session whose history and state no refused request may change."""

    def __init__(self, http: httpx2.AsyncClient, chat: Chat) -> None:
        self.http = http
        self.chat = chat
        self.path = f"/v1/sessions/{chat.id}"

    @classmethod
    async def open(cls, system: System) -> "Session":
        """A new one."""
        return cls(system.http(), await Chat.open(system))

    async def state(self) -> Any:
        """Everything that a refused request could have changed."""
        shown = (await self.http.get(self.path)).json()
        del shown["stats"]
        return shown, await self.chat.history()

    async def refuses(
        self, verb: str, tail: str, status: int, kind: str, begins: str, **sent: Any
    ) -> None:
        """The answer is this error."""
        answer = await self.http.request(verb, self.path + tail, **sent)
        what = (verb, tail[:100], str(sent)[:200], answer.text[:300])
        assert answer.headers["content-type"].startswith("application/json"), what
        assert answer.status_code == status, what
        error = answer.json()["error"]
        assert error["type"] == kind, what
        assert error["message"].startswith(begins), what


async def test_bad_events_are_refused_by_path_and_store_nothing(running_system: System) -> None:
    session = await Session.open(running_system)
    before = await session.state()
    for body, begins in EVENTS:
        await session.refuses("POST", "/events", 400, INVALID, begins, json=body)
    for content, begins in RAW:
        await session.refuses("POST", "/events", 400, INVALID, begins, content=content)
    assert await session.state() == before
    for verb, tail in (("POST", "/events"), ("GET", "/events"), ("GET", "/events/stream")):
        body = json.dumps({"events": [HELLO]}) if verb == "POST" else None
        answer = await session.http.request(verb, f"/v1/sessions/{NOBODY}{tail}", content=body)
        assert (answer.status_code, answer.json()["error"]["type"]) == (404, "not_found_error")


async def test_bad_queries_of_lists_and_streams_are_refused(running_system: System) -> None:
    session = await Session.open(running_system)
    before = await session.state()
    for query, begins in LISTS:
        await session.refuses("GET", f"/events?{query}", 400, INVALID, begins)
    for query, headers, begins in STREAMS:
        tail = f"/events/stream?{query}"
        await session.refuses("GET", tail, 400, INVALID, begins, headers=headers)
    assert await session.state() == before


async def test_bad_headers_and_verbs_are_refused(running_system: System) -> None:
    session = await Session.open(running_system)
    before = await session.state()
    for verb, tail, headers, status, kind, begins in HEADERS:
        body = {"events": [HELLO]} if verb == "POST" and tail == "/events" else None
        sent: dict[str, Any] = (
            {"headers": headers}
            if body is None
            else {
                "headers": headers,
                "json": body,
            }
        )
        await session.refuses(verb, tail, status, kind, begins, **sent)
    assert await session.state() == before
