"""What must hold of the public log read from its beginning: statuses, idles, actions, spans."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

_FINAL = ("end_turn", "retries_exhausted", "refusal")
_WHILE_RUNNING = (
    *("agent.message", "agent.tool_use", "agent.custom_tool_use"),
    *("span.model_request_start", "span.model_request_end"),
)


@dataclass(frozen=True)
class PublicLog:
    """A log from its beginning."""

    entries: list[tuple[int, Json]]
    """Position and event; a queued event comes again with `processed_at` when marked."""
    ends: list[int]
    """The last position after each end of a turn, whether or not that published something."""


@dataclass
class Walk:
    """One reading of a log."""

    complaints: list[str] = field(default_factory=list[str])
    running: bool = False
    turns: int = 0
    finals: int = 0
    interrupted: bool = False
    errors: int = 0
    """A turn that was taken out may hold up the next one, which ends with an idle as well."""
    waiting: set[str] = field(default_factory=set[str])
    """Queued messages."""
    waited: bool = False
    """Whether input waited when the turn was done."""
    open: list[str] = field(default_factory=list[str])
    """Calls that a client must answer or decide."""
    spans: set[str] = field(default_factory=set[str])

    def read(self, event: Json) -> None:
        """The next entry."""
        kind, marked = str(event["type"]), event["processed_at"] is not None
        if kind in _WHILE_RUNNING and not self.running:
            self._complain(f"{kind} while the session does not run")
        match kind:
            case "user.message":
                self._message(event, marked)
            case "user.interrupt" if marked and self.turns and not self.finals:
                self.interrupted = True
            case "user.custom_tool_result":
                self._close(event["custom_tool_use_id"])
            case "user.tool_confirmation" if not marked:
                self._close(event["tool_use_id"])
            case "agent.tool_result":
                self._close(event["tool_use_id"])
            case "agent.custom_tool_use":
                self.open.append(event["id"])
            case "agent.tool_use" if event["evaluated_permission"] == "ask":
                self.open.append(event["id"])
            case "session.error":
                self.errors += 1
            case _:
                self._status(kind, event)

    def done(self) -> None:
        """Here the turn was done."""
        self.waited = bool(self.waiting)

    def end(self) -> None:
        """Nothing follows."""
        self.waited = False
        self._turn_over()
        if self.spans:
            self._complain(f"spans without an end: {self.spans}")

    def _message(self, event: Json, marked: bool) -> None:
        if not marked:
            self.waiting.add(event["id"])
            return
        if not self.running:
            self._complain("a turn begins while the session does not run")
        if self.turns:
            self._turn_over()
        self.waiting.discard(event["id"])
        self.turns += 1
        self.finals, self.errors, self.interrupted, self.waited = 0, 0, False, False

    def _turn_over(self) -> None:
        """Exactly one final idle; none where the turn ended by itself and input waited."""
        by_itself = not self.interrupted and not self.errors
        least = 0 if by_itself and self.waited else 1
        if not least <= self.finals <= least + self.errors:
            what = "by itself" if by_itself else "by force"
            self._complain(f"turn {self.turns} ended {what} with {self.finals} final idles")

    def _status(self, kind: str, event: Json) -> None:
        match kind:
            case "span.model_request_start":
                self.spans.add(event["id"])
            case "span.model_request_end":
                if event["model_request_start_id"] not in self.spans:
                    self._complain(f"a span ends that is not open: {event}")
                self.spans.discard(event["model_request_start_id"])
            case "session.status_running":
                if self.running:
                    self._complain("the session runs twice")
                self.running = True
            case "session.status_idle":
                self._idle(event)
            case _:
                pass

    def _idle(self, event: Json) -> None:
        stop = event["stop_reason"]["type"]
        if stop in _FINAL:
            self.finals += 1
            if self.open or self.spans:
                self._complain(f"an idle {stop} leaves {self.open} and {self.spans} open")
        elif event["stop_reason"]["event_ids"] != self.open:
            said = event["stop_reason"]["event_ids"]
            self._complain(f"an idle asks for {said}, and {self.open} are open")
        if not self.running and stop in _FINAL and not self.interrupted:
            self._complain("an idle ends what does not run")
        self.running = False

    def _close(self, use_id: str) -> None:
        if use_id in self.open:
            self.open.remove(use_id)

    def _complain(self, what: str) -> None:
        self.complaints.append(what)


def complaints(log: PublicLog) -> Iterator[str]:
    """What does not hold of a log whose session is over."""
    walk, ends = Walk(), deque(log.ends)
    for position, event in log.entries:
        while ends and ends[0] < position:
            ends.popleft()
            walk.done()
        walk.read(event)
    walk.end()
    yield from walk.complaints
