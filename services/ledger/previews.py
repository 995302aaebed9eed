"""Previews: live text of an event that is being produced, fenced by the span of its request.

Nothing here is stored. A preview reaches a subscriber behind the frame of its span's start and
never behind the frame of its end; what cannot be delivered so is dropped.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import msgspec
from counterfoil.ledger.v1 import session_pb2, turn_pb2

from services.ledger.log_entry import Entry
from services.ledger.log_types import SPAN_END, SPAN_START

_WAITING_BYTES_MAX = 256 * 2**10
_WAITING_SPANS_MAX = 8
_CLOSED_SPANS_MAX = 64
_encode = msgspec.json.Encoder().encode


class _SpanEnd(msgspec.Struct):
    model_request_start_id: str = ""


_decode_end = msgspec.json.Decoder(_SpanEnd).decode


def ended_span(entry: Entry) -> str:
    """Of the entry of a span's end: the event id of its start."""
    return _decode_end(entry.body).model_request_start_id


def frame(preview: turn_pb2.Preview) -> session_pb2.StreamFrame:
    """How a preview looks on a stream: its start, or a piece of text."""
    if not preview.HasField("text"):
        kind = "event_start"
        shape: object = {"type": kind, "event": {"type": preview.type, "id": preview.event_id}}
    else:
        kind = "event_delta"
        delta = {
            "type": "content_delta",
            "index": preview.content_index,
            "content": {"type": "text", "text": preview.text},
        }
        shape = {"type": kind, "event_id": preview.event_id, "delta": delta}
    return session_pb2.StreamFrame(type=kind, json=_encode(shape))


class Spans:
    """Which spans of a session are open, as far as its feed has delivered.

    Previews may overtake the entry of their span's start on its way through the database: a bounded
    amount of them waits for it.
    """

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._closed: OrderedDict[str, None] = OrderedDict()
        self._waiting: OrderedDict[str, list[turn_pb2.Preview]] = OrderedDict()
        self._waiting_bytes: dict[str, int] = {}

    def admit(
        self, span_id: str, previews: Sequence[turn_pb2.Preview]
    ) -> Sequence[turn_pb2.Preview]:
        """Those previews that may be delivered now."""
        if span_id in self._open:
            return previews
        if span_id not in self._closed:
            self._wait(span_id, previews)
        return ()

    def observe(self, entries: Iterable[Entry]) -> list[tuple[str, list[turn_pb2.Preview]]]:
        """Note delivered entries; returns what waited for the spans that are open now."""
        started: list[str] = []
        for entry in entries:
            if entry.type == SPAN_START:
                self._open.add(entry.event_id)
                started.append(entry.event_id)
            elif entry.type == SPAN_END:
                self._close(ended_span(entry))
        ready = [
            (span_id, self._waiting.pop(span_id))
            for span_id in started
            if span_id in self._open and span_id in self._waiting
        ]
        for span_id, _ in ready:
            del self._waiting_bytes[span_id]
        return ready

    def _wait(self, span_id: str, previews: Sequence[turn_pb2.Preview]) -> None:
        waiting = self._waiting.setdefault(span_id, [])
        size = self._waiting_bytes.get(span_id, 0) + sum(preview.ByteSize() for preview in previews)
        if size > _WAITING_BYTES_MAX:
            # A contiguous prefix is kept: nothing of this span is taken from here on.
            size = _WAITING_BYTES_MAX + 1
        else:
            waiting.extend(previews)
        self._waiting_bytes[span_id] = size
        if len(self._waiting) > _WAITING_SPANS_MAX:
            dropped, _ = self._waiting.popitem(last=False)
            del self._waiting_bytes[dropped]
            self._remember_closed(dropped)

    def _close(self, span_id: str) -> None:
        self._open.discard(span_id)
        self._waiting.pop(span_id, None)
        self._waiting_bytes.pop(span_id, None)
        self._remember_closed(span_id)

    def _remember_closed(self, span_id: str) -> None:
        self._closed[span_id] = None
        if len(self._closed) > _CLOSED_SPANS_MAX:
            self._closed.popitem(last=False)


class _Progress:
    """How far one event's previews went on one connection."""

    __slots__ = ("index", "shed", "span_id")

    def __init__(self, span_id: str) -> None:
        self.span_id = span_id
        self.index = -1
        self.shed = False


class Admission:
    """What one subscriber gets of the previews: the types that it asked for, from their start.

    Per event: one start, then contiguous text; after the first piece that is left out, nothing.
    """

    __slots__ = ("_events", "_spans", "wanted")

    def __init__(self, wanted: Iterable[str]) -> None:
        self.wanted = frozenset(wanted)
        self._spans: set[str] = set()
        self._events: dict[str, _Progress] = {}

    def observe(self, entry: Entry) -> None:
        """An entry goes to the subscriber: it opens or closes a span, or completes an event."""
        if not self.wanted:
            return
        if entry.type == SPAN_START:
            self._spans.add(entry.event_id)
        elif entry.type == SPAN_END:
            self._close(ended_span(entry))
        elif entry.event_id in self._events:
            self._events[entry.event_id].shed = True

    def reset(self) -> None:
        """Entries were taken back: no preview of an open span fits any more."""
        self._spans.clear()
        self._events.clear()

    def admit(self, span_id: str, preview: turn_pb2.Preview, room: bool) -> bool:
        """Whether this preview goes to the subscriber; without room its event gets no more."""
        if preview.type not in self.wanted or span_id not in self._spans:
            return False
        progress = self._events.get(preview.event_id)
        if progress is None:
            progress = self._events[preview.event_id] = _Progress(span_id)
            progress.shed = preview.HasField("text") or not room
            return not progress.shed
        if progress.shed or not preview.HasField("text") or preview.type == "agent.thinking":
            return False
        index = preview.content_index
        if not room or index not in (progress.index, progress.index + 1) or index < 0:
            progress.shed = True
            return False
        progress.index = index
        return True

    def _close(self, span_id: str) -> None:
        self._spans.discard(span_id)
        for event_id in [e for e, progress in self._events.items() if progress.span_id == span_id]:
            del self._events[event_id]
