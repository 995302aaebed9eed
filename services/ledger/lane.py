"""A lane: one session with its primary thread, loaded under the lock of the session's row.

Decisions are pure functions over a lane: they change its rows and add entries for the log; the
store writes what changed. Ids of the ledger's own events derive from their log positions.
"""

from collections.abc import Sequence
from copy import copy
from datetime import datetime
from enum import IntEnum
from typing import NamedTuple

from counterfoil.ledger.v1 import events_pb2, session_events_pb2, session_pb2, turn_pb2
from counterfoil.types.v1 import reference_pb2, runtime_pb2
from msgspec import Struct

from foundation import ids
from services.ledger.event_types import type_of
from services.ledger.log_writer import Draft, LogHead, render

TAKEOVERS_MAX = 5
"""Lost claims in a row without a new answer or results entry, before a turn is quarantined."""

EPOCH_MAX = 2**63 - 1
"""Epoch of a deleted thread: no claim is newer."""

OVER = (turn_pb2.TURN_STATE_SETTLING, turn_pb2.TURN_STATE_QUARANTINED)
"""States of a turn that is publicly over, with its closing entry still to be written."""


class Ended(IntEnum):
    """How the last claim on a thread ended."""

    COMMITTED = 0
    LOST = 1
    EXCUSED = 2


class Answer(IntEnum):
    """What a client said to a call."""

    NONE = 0
    RESULT = 1
    ALLOW = 2
    DENY = 3


class Source(IntEnum):
    """Who wrote the public result of a call."""

    NONE = 0
    LEDGER = 1
    CLIENT = 2
    OWNER = 3


class Session(Struct):
    """The session's row."""

    workspace_id: str
    session_id: str
    thread_id: str
    agent_name: str
    status: "session_pb2.SessionStatus.ValueType"
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_creation_tokens: int
    active_ms: int
    running_since: datetime | None
    deleted_at: datetime | None
    runtime_revision: int = 0
    revision: int = 0
    cache_creation_1h_tokens: int = 0
    web_searches: int = 0
    web_fetches: int = 0


class Thread(Struct):
    """The thread's row."""

    epoch: int
    deleted: bool
    lease_stream: str | None
    ended: Ended
    head_seq: int
    head_digest: bytes
    claimable_at: datetime | None


class Turn(Struct):
    """A turn's row; the columns are described in `schema`."""

    turn_id: str
    input_position: int
    input_event_id: str
    state: "turn_pb2.TurnState.ValueType" = turn_pb2.TURN_STATE_QUEUED
    system_event_id: str | None = None
    system_position: int | None = None
    marked: bool = False
    interrupted: bool = False
    interrupt_event_id: str | None = None
    interrupt_position: int | None = None
    stop_reason: "session_events_pb2.StopReasonType.ValueType" = (
        session_events_pb2.STOP_REASON_TYPE_UNSPECIFIED
    )
    round: int = -1
    round_open: bool = False
    attempt_round: int = -1
    attempt_epoch: int = 0
    attempt_number: int = 0
    span_event_id: str | None = None
    span_open: bool = False
    continued_epoch: int = 0
    takeovers: int = 0
    retries: int = 0
    not_before: datetime | None = None
    released: bool = False
    traceparent: str = ""

    @property
    def copies_history(self) -> bool:
        """It is the turn of a fork: it has no input, and its owner copies the history."""
        return self.input_position == 0


class Call(Struct):
    """A tool call of a round; the columns are described in `schema`."""

    turn_id: str
    round: int
    place: int
    block_index: int
    use_event_id: str
    operation_id: str
    owner: "runtime_pb2.ToolOwner.ValueType"
    policy: "runtime_pb2.ToolPolicy.ValueType"
    name: str
    state: "turn_pb2.CallState.ValueType"
    answer: Answer = Answer.NONE
    answer_event_id: str | None = None
    answer_position: int | None = None
    answer_digest: bytes | None = None
    answer_marked: bool = False
    result_source: Source = Source.NONE
    result_event_id: str | None = None
    result_position: int | None = None
    system_event_id: str | None = None
    system_position: int | None = None
    system_marked: bool = False

    @property
    def name_utf8(self) -> bytes:
        """The name as it is stored: text columns cannot hold U+0000."""
        return self.name.encode()

    @property
    def client_owned(self) -> bool:
        """The client executes it: its public result is a client's event."""
        return self.owner == runtime_pb2.TOOL_OWNER_CLIENT_CUSTOM

    @property
    def waits_for_client(self) -> bool:
        """The call opens an action."""
        asks = self.policy == runtime_pb2.TOOL_POLICY_ALWAYS_ASK
        platform = self.owner == runtime_pb2.TOOL_OWNER_PLATFORM_MANAGED
        return self.client_owned or (platform and asks)


class Entry(NamedTuple):
    """A transcript entry to record."""

    turn_id: str
    seq: int
    entry_id: str
    kind: int
    digest: bytes


class Round(NamedTuple):
    """A published answer to record."""

    turn_id: str
    round: int
    answer_entry_id: str
    answer_digest: bytes
    attempt_epoch: int
    attempt_number: int


class Commit(NamedTuple):
    """A final answer to a commit, to record."""

    turn_id: str
    epoch: int
    round: int
    kind: int
    answer: int


class Lane(Struct):
    """What one transaction on a session works with.

    `turns` are the oldest two that are not over, then the new ones, `more` says that others stand
    between; `calls` are those of the front turn's newest round while it is open, `past` calls of
    older rounds where needed.
    """

    session: Session
    thread: Thread
    log: LogHead
    turns: list[Turn]
    now: datetime
    calls: list[Call] = []
    past: list[Call] = []
    settled_calls: list[Call] = []
    drafts: list[Draft] = []
    bodies: dict[int, bytes] = {}
    new_entries: list[Entry] = []
    new_rounds: list[Round] = []
    new_commits: list[Commit] = []
    finished: list[Turn] = []
    lease_taken: bool = False
    more: bool = False
    compaction_event_id: str = ""
    """An event that is known to be in the log; it is not stored."""

    def after(self, head: LogHead, revision: int) -> "Lane | None":
        """The lane as it is loaded once this one is stored, with the log's new head; None when it
        has to be read for that. It takes this one's rows over: only one of both may change."""
        turns = self.turns[:2]
        more = self.more or len(self.turns) > 2
        if self.thread.deleted or (more and len(turns) < 2):
            return None
        front = turns[0] if turns else None
        calls = self.calls if front is not None and front.round_open else []
        self.session.revision = revision
        return Lane(
            self.session,
            self.thread,
            head,
            turns,
            self.now,
            calls,
            more=more,
            compaction_event_id=self.compaction_event_id,
        )

    def copy(self, now: datetime) -> "Lane":
        """A lane without drafts to decide on, at `now`."""
        return Lane(
            copy(self.session),
            copy(self.thread),
            self.log,
            [copy(turn) for turn in self.turns],
            now,
            [copy(call) for call in self.calls],
            more=self.more,
            compaction_event_id=self.compaction_event_id,
        )

    @property
    def thread_ref(self) -> reference_pb2.ThreadRef:
        """The thread's name."""
        return reference_pb2.ThreadRef(
            workspace_id=self.session.workspace_id,
            session_id=self.session.session_id,
            thread_id=self.session.thread_id,
        )

    @property
    def key(self) -> tuple[str, str, str]:
        """The thread's name: workspace, session and thread id."""
        return self.session.workspace_id, self.session.session_id, self.session.thread_id

    @property
    def front(self) -> Turn | None:
        """The oldest turn that is not over."""
        return self.turns[0] if self.turns else None

    @property
    def waiting(self) -> Turn | None:
        """The turn behind the front one."""
        return self.turns[1] if len(self.turns) > 1 else None

    @property
    def running(self) -> bool:
        """Whether clients see the session run."""
        return self.session.status == session_pb2.SESSION_STATUS_RUNNING

    @property
    def terminated(self) -> bool:
        """Whether the session is over: it takes nothing any more."""
        return self.session.status == session_pb2.SESSION_STATUS_TERMINATED

    @property
    def position(self) -> int:
        """Position of the newest entry, drafts included."""
        return self.log.position + len(self.drafts)

    def next_id(self) -> str:
        """Event id for the next entry, where the ledger itself writes it."""
        return ids.derived("event", self.session.session_id, self.position + 1)

    def publish(self, event: events_pb2.Event, head: reference_pb2.Head | None = None) -> int:
        """Add an event that takes effect now; its position."""
        body = render(event)
        self.drafts.append(Draft.event(event.id, type_of(event), body, head))
        self.bodies[self.position] = body
        return self.position

    def queue(self, event: events_pb2.Event) -> int:
        """Add an event that waits for its mark; its position."""
        body = render(event)
        self.drafts.append(Draft.queued(event.id, type_of(event), body))
        self.bodies[self.position] = body
        return self.position

    def mark(self, event_id: str, event_type: str, position: int) -> None:
        """Add the mark of the queued event at `position`."""
        self.drafts.append(Draft.mark(event_id, event_type, position))

    def finish_front(self) -> Turn:
        """The front turn is over."""
        turn = self.turns.pop(0)
        turn.state = turn_pb2.TURN_STATE_DONE
        self.finished.append(turn)
        self.next_round()
        return turn

    def drop_waiting(self) -> None:
        """The loaded turns behind the front one never run; the store drops those that were not
        loaded."""
        for turn in self.turns[1:]:
            turn.state = turn_pb2.TURN_STATE_DONE
            self.finished.append(turn)
        del self.turns[1:]

    def next_round(self) -> None:
        """The calls of the open round are put aside; what changed of them is still stored."""
        self.settled_calls += self.calls
        self.calls = []

    def refresh_claimable(self) -> None:
        """Set from when on the thread has something to claim."""
        self.thread.claimable_at = claimable_at(self.turns, self.now)


def claimable_at(turns: Sequence[Turn], now: datetime) -> datetime | None:
    """From when on the first of `turns` can be claimed; None while only a client can move it.

    A turn that is publicly over is settled only together with a claim on what follows, or when an
    operator asks for it.
    """
    if not turns:
        return None
    front = turns[0]
    if front.state in (turn_pb2.TURN_STATE_PARKED, turn_pb2.TURN_STATE_QUARANTINED):
        return None
    if front.state == turn_pb2.TURN_STATE_SETTLING and len(turns) == 1 and not front.released:
        return None
    return front.not_before or now
