"""One change of one session: what it was decided on, what was decided, what was stored."""

from collections.abc import Collection, Sequence
from copy import copy

from counterfoil.ledger.v1 import turn_pb2
from msgspec import Struct

from foundation import telemetry
from foundation.storage import Connection, SealRing
from services.ledger import claiming, claims, lane_store, log_chain
from services.ledger.lane import Call, Lane, Thread, Turn
from services.ledger.lane_write_store import LaneWrite
from services.ledger.log_probe import Reader
from services.ledger.log_row import LogHead, Planned

PARKED = turn_pb2.TURN_STATE_PARKED
QUEUED = turn_pb2.TURN_STATE_QUEUED
RUNNING = turn_pb2.TURN_STATE_RUNNING

CallKey = tuple[str, int, int]


class Before(Struct):
    """A lane as it was loaded, to find what changed."""

    thread: Thread
    turns: dict[str, Turn]
    calls: list[Call]
    revision: int

    @classmethod
    def of(cls, lane: Lane) -> "Before":
        """What a lane is now; it must not change any more: decide on a copy."""
        turns = {turn.turn_id: turn for turn in lane.turns}
        return cls(lane.thread, turns, list(lane.calls), lane.session.revision)


class Change(Struct):
    """A change under way. When it is concluded, `planned` holds what is added to the log, `turns`
    what is new or changed of them by id, and `claim` what a stream may then run. `locked` is the
    transaction that holds the session's lock, if one does: a decision on a copy has none."""

    reader: Reader
    lane: Lane
    before: Before
    ring: SealRing
    locked: Connection | None = None
    takeover: bool | None = None
    claim: turn_pb2.Claim | None = None
    planned: Planned | None = None
    turns: dict[str, Turn] = {}
    _opened: dict[int, bytes] = {}

    @property
    def connection(self) -> Connection:
        """The transaction that holds the session's lock."""
        if self.locked is None:
            raise RuntimeError("this change is decided on a copy: it has no transaction")
        return self.locked

    async def bodies(self, positions: Collection[int]) -> dict[int, bytes]:
        """Stored event bodies by log position, those of this change included."""
        known = self.lane.bodies | self._opened
        missing = [position for position in positions if position not in known]
        session = self.lane.session
        if missing:
            rows = await lane_store.sealed_bodies(
                self.reader, session.workspace_id, session.session_id, missing
            )
            for row in rows:
                _, body = log_chain.open_body(
                    self.ring,
                    row["sealed"],
                    session.workspace_id,
                    session.session_id,
                    row["position"],
                    row["event_id"],
                )
                self._opened[row["position"]] = known[row["position"]] = body
        return known

    async def answered_bytes(self) -> int:
        """Bytes of the answers to the open round that came before this change."""
        lane = self.lane
        before = [one for one in claims.answer_positions(lane) if one <= lane.log.position]
        if not before:
            return 0
        session = lane.session
        return await lane_store.body_bytes(
            self.reader, session.workspace_id, session.session_id, before
        )

    async def load_past(self, operation_ids: Sequence[str]) -> None:
        """Load the calls of older rounds that these operations belong to."""
        current = {call.operation_id for call in self.lane.calls}
        missing = [id_ for id_ in operation_ids if id_ not in current]
        self.lane.past = await lane_store.calls_of(self.reader, self.lane, missing)
        self.before.calls.extend(copy(call) for call in self.lane.past)

    def take(self, stream_id: str) -> bool:
        """Claim the front turn for a stream, if it can be claimed; whether it was."""
        if not claiming.claimable(self.lane):
            return False
        self.takeover = claiming.claim(self.lane, stream_id)
        return self.takeover is not None

    def conclude(self, planned: Planned) -> None:
        """The log's new entries are known: what refers to them follows."""
        self.planned = planned
        lane, first = self.lane, self.lane.log.position + 1
        for call in self._all_calls():
            if call.answer_position is not None and call.answer_position >= first:
                call.answer_digest = planned.rows[call.answer_position - first].digest
        before = self.before.turns
        for turn in lane.turns:
            # Turns that this call queued or resumed go on in its trace.
            was = before.get(turn.turn_id)
            if was is None or (was.state == PARKED and turn.state in (QUEUED, RUNNING)):
                turn.traceparent = telemetry.traceparent()
        self.turns = {
            turn.turn_id: turn
            for turn in (*lane.finished, *lane.turns)
            if before.get(turn.turn_id) != turn
        }

    @property
    def head(self) -> LogHead:
        """The log's head behind this change."""
        return self.lane.log if self.planned is None else self.planned.head

    def after(self) -> Lane | None:
        """The lane as it is loaded once this change is stored; None when it has to be read."""
        revision = self.before.revision
        return self.lane.after(self.head, revision if self.empty else revision + 1)

    @property
    def rows(self) -> int:
        """The number of the log's new entries."""
        return 0 if self.planned is None else len(self.planned.rows)

    @property
    def weight(self) -> int:
        """Bytes of the log's new entries."""
        return 0 if self.planned is None else sum(len(row.body) for row in self.planned.rows)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to store; known when it is concluded."""
        lane = self.lane
        return not (
            self.turns
            or (self.planned is not None and self.planned.rows)
            or self.before.thread != lane.thread
            or lane.lease_taken
        )

    def changed_calls(self) -> dict[CallKey, Call]:
        """New and changed calls by turn, round and place."""
        before = self.before.calls
        return {
            (call.turn_id, call.round, call.place): call
            for call in self._all_calls()
            if call not in before
        }

    def _all_calls(self) -> list[Call]:
        lane = self.lane
        return [*lane.past, *lane.settled_calls, *lane.calls]


def write_of(changes: Sequence[Change], lease_ms: int) -> LaneWrite:
    """What changes of one session store together; a lease that one takes holds `lease_ms`."""
    first, last = changes[0], changes[-1]
    turns: dict[str, Turn] = {}
    calls: dict[CallKey, Call] = {}
    new: set[str] = set()
    lanes = [change.lane for change in changes]
    for change in changes:
        turns |= change.turns
        calls |= change.changed_calls()
        new |= change.turns.keys() - change.before.turns.keys()
    return LaneWrite(
        first.before.revision,
        last.before.revision + 1,
        first.before.thread,
        last.lane.session,
        last.lane.thread,
        last.head,
        last.lane.now,
        lease_ms if any(lane.lease_taken for lane in lanes) else None,
        [turn for turn in turns.values() if turn.turn_id in new],
        [turn for turn in turns.values() if turn.turn_id not in new],
        calls.values(),
        [one for lane in lanes for one in lane.new_rounds],
        [one for lane in lanes for one in lane.new_entries],
        [one for lane in lanes for one in lane.new_commits],
        [row for change in changes if change.planned for row in change.planned.rows],
    )
