"""Server-sent events: the bytes of frames, and where a reconnecting client continues."""

import re
from collections.abc import Iterable

from counterfoil.ledger.v1 import session_pb2

from foundation.errors import invalid

PING = b'event: ping\ndata: {"type":"ping"}\n\n'
"""A frame that every client skips."""

_NAMED = frozenset(
    f"{family}.{name}"
    for family, names in {
        "user": "message interrupt tool_confirmation custom_tool_result tool_result define_outcome",
        "agent": "message thinking tool_use tool_result mcp_tool_use mcp_tool_result"
        " custom_tool_use thread_context_compacted thread_message_received thread_message_sent"
        " session_thread_message_received session_thread_message_sent",
        "session": "status_running status_idle status_rescheduled status_terminated error deleted"
        " updated thread_created thread_status_created thread_status_running thread_status_idle"
        " thread_status_rescheduled thread_status_terminated",
        "span": "model_request_start model_request_end outcome_evaluation_start"
        " outcome_evaluation_ongoing outcome_evaluation_end",
        "system": "message",
    }.items()
    for name in names.split()
) | {"event_start", "event_delta"}
"""Older clients drop frames with names that they do not know; these they know by their own name."""

_CATCH_ALL = b"message"
"""The one name that every client accepts, whatever the type is."""

_POSITION = re.compile(r"[0-9]{1,18}")


def render(
    frames: Iterable[session_pb2.StreamFrame], session_id: str, *, catch_all: bool = False
) -> bytes:
    """The bytes of a batch. Log entries get `id: <session>:<position>`, previews get none.

    With `catch_all` every frame is named `message`, for clients that know no other name.
    """
    session = session_id.encode("utf-8", "replace")
    parts: list[bytes] = []
    for frame in frames:
        name = _CATCH_ALL if catch_all else _name(frame.type)
        mark = b"\nid: %b:%d" % (session, frame.position) if frame.position else b""
        parts.append(b"event: %b%b\ndata: %b\n\n" % (name, mark, _one_line(frame.json)))
    return b"".join(parts)


def error(body: bytes) -> bytes:
    """The frame that tells clients why a stream ended early."""
    return b"event: error\ndata: %b\n\n" % _one_line(body)


def position_behind(last_event_id: str, session_id: str) -> int:
    """The position that a `Last-Event-ID` names; raises INVALID_FIELD for anything but an id of
    this session."""
    session, _, position = last_event_id.rpartition(":")
    if not _POSITION.fullmatch(position) or not session:
        raise invalid("Last-Event-ID", "must be <session id>:<position>, as the stream sent it")
    if session != session_id:
        raise invalid("Last-Event-ID", "names another session than the path")
    return int(position)


def _name(type_: str) -> bytes:
    return type_.encode() if type_ in _NAMED else _CATCH_ALL


def _one_line(json: bytes) -> bytes:
    """JSON strings hold no raw line breaks, so those between tokens may become spaces."""
    if b"\n" in json or b"\r" in json:
        return json.replace(b"\r", b" ").replace(b"\n", b" ")
    return json
