"""Random schedules over the pure decisions: clients, owners that die at any step, interrupts.

No database: a lane is kept in memory, and everything that must hold is checked after every step.
"""

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from counterfoil.ledger.v1 import client_events_pb2, session_events_pb2, session_pb2, turn_pb2
from counterfoil.types.v1 import reference_pb2, usage_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation import ids
from foundation.errors import Failure
from services.ledger import admission, barrier, claiming, commits, interrupt, notices, rounds
from services.ledger.lane import OVER, Call, Ended, Lane, Session, Source, Thread, Turn
from services.ledger.log_row import KIND_MARK, KIND_QUEUED
from services.ledger.log_writer import LogHead
from tests.services.ledger.turns import events
from tests.services.ledger.turns.events import ALLOW, ASK, CUSTOM, PLATFORM

DONE = turn_pb2.TURN_STATE_DONE
PARKED = turn_pb2.TURN_STATE_PARKED
RUNNING = turn_pb2.TURN_STATE_RUNNING
CALLS = [(CUSTOM, ALLOW), (PLATFORM, ALLOW), (PLATFORM, ASK)]
FINAL_IDLES = ("end_turn", "retries_exhausted")


@dataclass
class Entry:
    """One transcript entry."""

    turn_id: str
    round: int
    kind: "turn_pb2.EntryKind.ValueType"
    calls: list[turn_pb2.RoundCall] = field(default_factory=list[turn_pb2.RoundCall])


class World:
    """One session, its log and its transcript."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.lane = Lane(
            Session(
                "w", "s", "t", "clerk", session_pb2.SESSION_STATUS_IDLE, 0, 0, 0, 0, 0, None, None
            ),
            Thread(0, False, None, Ended.COMMITTED, 0, b"", None),
            LogHead(),
            [],
            self.now,
        )
        self.transcript: list[Entry] = []
        self.events: dict[str, str] = {}
        self.queued: dict[str, int] = {}
        self.marked: set[str] = set()
        self.statuses: list[str] = []
        self.bodies: dict[int, bytes] = {}
        self.results: dict[str, int] = {}
        self.calls: dict[str, Call] = {}
        self.turns: dict[str, Turn] = {}
        self.owner: Owner | None = None
        self.attempts = 0
        self.spent: Counter[str] = Counter()
        self.cached_longer = self.searched = self.fetched = 0

    # One transaction: decide, then check and keep what was decided.

    def apply(self) -> None:
        lane = self.lane
        position = lane.log.position
        for draft in lane.drafts:
            position += 1
            if draft.kind == KIND_MARK:
                assert self.queued[draft.event_id] == draft.refers_position
                assert draft.event_id not in self.marked, "marked twice"
                self.marked.add(draft.event_id)
                continue
            assert draft.event_id not in self.events, "published twice"
            self.events[draft.event_id] = draft.event_type
            self.bodies[position] = draft.body
            if draft.kind == KIND_QUEUED:
                self.queued[draft.event_id] = position
            self._note(draft.event_type, draft.body)
        for call in (*lane.settled_calls, *lane.calls):
            self.calls[call.use_event_id] = call
        for turn in (*lane.finished, *lane.turns):
            self.turns[turn.turn_id] = turn
        front = lane.front
        calls = lane.calls if front is not None and front.round_open else []
        self.lane = Lane(lane.session, lane.thread, LogHead(position), lane.turns, self.now, calls)
        if lane.thread.lease_stream is None:
            self.owner = None
        self._check()

    def _note(self, event_type: str, body: bytes) -> None:
        if event_type == "span.model_request_end":
            self.spent.update(json.loads(body)["model_usage"])
        if event_type == "session.status_running":
            self.statuses.append("running")
        if event_type == "session.status_idle":
            reason = body.split(b'"stop_reason":{"type":"')[1].split(b'"')[0].decode()
            self.statuses.append(reason)
        if event_type in ("user.custom_tool_result", "agent.tool_result"):
            use = body.split(b'tool_use_id":"')[1].split(b'"')[0].decode()
            self.results[use] = self.results.get(use, 0) + 1
            assert self.results[use] == 1, "two results for one call"

    def _check(self) -> None:
        lane = self.lane
        self._check_usage(notices.usage(lane.session))
        public = next((turn for turn in lane.turns if turn.state not in OVER), None)
        moves = public is not None and public.state != PARKED
        stuck = bool(lane.turns) and lane.turns[0].state == turn_pb2.TURN_STATE_QUARANTINED
        assert lane.running == (moves and not stuck), "the status is not what the turns do"
        assert (lane.thread.claimable_at is not None) or not lane.running, "runs and never claimed"
        for before, after in zip(self.statuses, self.statuses[1:], strict=False):
            assert (before, after) != ("running", "running"), "running twice"
            if after in FINAL_IDLES:
                assert before in ("running", "requires_action"), "idle twice"

    def _check_usage(self, told: session_events_pb2.Usage) -> None:
        """The session's usage is the sum over its ended spans, lost answers included."""
        spent, written = self.spent, told.cache_creation
        assert told.input_tokens == spent["input_tokens"]
        assert told.output_tokens == spent["output_tokens"]
        assert told.cache_read_input_tokens == spent["cache_read_input_tokens"]
        both = written.ephemeral_1h_input_tokens + written.ephemeral_5m_input_tokens
        assert both == spent["cache_creation_input_tokens"]
        assert written.ephemeral_1h_input_tokens == self.cached_longer
        assert told.server_tool_use.web_search_requests == self.searched
        assert told.server_tool_use.web_fetch_requests == self.fetched

    def usage(self, turn: Turn) -> usage_pb2.ModelUsage:
        """What an answer that is published now costs; it counts if its span is open."""
        draw = self.random.randrange
        hour = draw(9)
        usage = usage_pb2.ModelUsage(
            input_tokens=draw(100),
            output_tokens=draw(100),
            cache_read_input_tokens=draw(100),
            cache_creation_input_tokens=hour + draw(9),
            cache_creation_1h_input_tokens=hour,
            web_search_requests=draw(3),
            web_fetch_requests=draw(3),
        )
        if turn.span_open:
            self.cached_longer += usage.cache_creation_1h_input_tokens
            self.searched += usage.web_search_requests
            self.fetched += usage.web_fetch_requests
        return usage

    # What happens.

    def client(self, *events: client_events_pb2.ClientEvent) -> None:
        batch = admission.members(events, "events")
        admission.check(batch)
        try:
            admission.admit(self.lane, batch)
        except Failure:
            raise AssertionError("refused") from None
        self.apply()

    def answer(self) -> None:
        waiting = [call for call in self.lane.calls if call.state == turn_pb2.CALL_STATE_OPEN]
        if not waiting:
            return
        call = self.random.choice(waiting)
        if call.client_owned:
            sent = [events.custom_result(call.use_event_id)]
            if self.random.random() < 0.3:
                sent.append(events.system("note"))
            self.client(*sent)
        else:
            deny = self.random.choice([None, "no"])
            self.client(events.confirm(call.use_event_id, deny=deny))

    def claim(self) -> None:
        self.now += timedelta(seconds=1)
        self.lane.now = self.now
        if claiming.claimable(self.lane):
            before = self.lane.thread.epoch
            if claiming.claim(self.lane, "stream") is not None:
                self.owner = Owner(self, self.lane.turns[0], self.lane.thread.epoch)
            assert self.lane.thread.epoch == before + 1
            self.apply()

    def lose(self) -> None:
        """The owner dies; its lease is freed."""
        if self.owner is not None:
            self.lane.thread.lease_stream, self.owner = None, None

    def step(self) -> None:
        if self.owner is None:
            self.claim()
        else:
            self.owner.step()
            self.apply()


def _session() -> Session:
    idle = session_pb2.SESSION_STATUS_IDLE
    return Session("w", "s", "t", "clerk", idle, 0, 0, 0, 0, 0, None, None)


class Owner:
    """A runner that derives every step from what is stored, as takeovers do."""

    def __init__(self, world: World, turn: Turn, epoch: int) -> None:
        self.world = world
        self.turn = turn
        self.epoch = epoch
        # Round on whose answers this claim may act: it resumes it, or was told to continue.
        resumes = turn.round_open and not barrier.open_calls(world.lane)
        self.told = turn.round if resumes else -1

    def step(self) -> None:
        world, lane = self.world, self.world.lane
        turn = claiming.owned(lane, self.turn.turn_id, self.epoch)
        mine = [entry for entry in world.transcript if entry.turn_id == turn.turn_id]
        if not mine:
            world.transcript.append(Entry(turn.turn_id, 0, turn_pb2.ENTRY_KIND_INPUT))
            return
        newest = mine[-1]
        if lane.thread.head_seq < len(world.transcript) and newest.kind != _INPUT:
            self._publish(turn, newest)
        elif turn.state == turn_pb2.TURN_STATE_SETTLING or turn.interrupted:
            self._close(turn, newest)
        elif newest.kind == turn_pb2.ENTRY_KIND_ANSWER:
            self._act(turn, newest)
        else:
            self._ask(turn)

    def _ask(self, turn: Turn) -> None:
        world = self.world
        world.attempts += 1
        number = turn.round + 1
        attempt = reference_pb2.Attempt(epoch=self.epoch, number=world.attempts)
        span = ids.derived("event", "span", turn.turn_id, number, self.epoch, world.attempts)
        begin = turn_pb2.BeginRoundRequest(round=number, attempt=attempt, span_event_id=span)
        if not rounds.begin(world.lane, turn, begin, compacted=False):
            return
        if world.random.random() < 0.1:
            self._fail(turn)
            return
        count = world.random.choice([0, 1, 2, 3]) if number < 2 else 0
        calls = [
            turn_pb2.RoundCall(
                use_event_id=ids.derived("event", turn.turn_id, number, index, world.attempts),
                operation_id=ids.derived("operation", turn.turn_id, number, index, world.attempts),
                block_index=index,
                owner=owner,
                policy=policy,
            )
            for index, (owner, policy) in enumerate(world.random.choices(CALLS, k=count))
        ]
        if world.random.random() < 0.8:  # else the answer is lost with its attempt
            world.transcript.append(Entry(turn.turn_id, number, turn_pb2.ENTRY_KIND_ANSWER, calls))

    def _fail(self, turn: Turn) -> None:
        """The provider's answer broke off, for good: what it had used until then counts."""
        self._record(turn)
        said = commits.Said(lost_usage=self.world.usage(turn))
        commits.commit(self.world.lane, turn, turn_pb2.COMMIT_KIND_DONE, said=said)

    def _publish(self, turn: Turn, entry: Entry) -> None:
        """AppendRound with the commit that fits, or the results and their entry."""
        lane = self.world.lane
        if entry.kind == turn_pb2.ENTRY_KIND_RESULTS:
            self._results(lane, entry.calls)
            self._record(turn)
            return
        kind = turn_pb2.COMMIT_KIND_UNSPECIFIED
        if turn.state == RUNNING and not entry.calls:
            kind = turn_pb2.COMMIT_KIND_DONE
        request = turn_pb2.AppendRoundRequest(
            round=entry.round,
            attempt=reference_pb2.Attempt(
                epoch=max(1, turn.attempt_epoch), number=max(1, turn.attempt_number)
            ),
            answer_entry_id=_id(entry),
            answer_digest=_digest(entry),
            events=[events.use(call) for call in entry.calls],
            calls=entry.calls,
            span_event_id=turn.span_event_id or "",
            usage=self.world.usage(turn),
        )
        self._record(turn, upto=self.world.transcript.index(entry))
        rounds.publish_answer(lane, turn, request)
        self._record(turn, answers={_id(entry)})
        if kind != turn_pb2.COMMIT_KIND_UNSPECIFIED:
            commits.commit(lane, turn, kind)

    def _act(self, turn: Turn, answer: Entry) -> None:
        """Execute, park, or append the results."""
        lane = self.world.lane
        resumed = not any(one.state == turn_pb2.CALL_STATE_OPEN for one in lane.calls)
        for call in lane.calls:
            runs = not call.waits_for_client
            decided = call.state == turn_pb2.CALL_STATE_ANSWERED and not call.client_owned
            if call.result_source == Source.NONE and (
                runs or (decided and resumed and self.told == turn.round)
            ):
                self._results(lane, [_sent(call)])
                return
        waits = any(call.waits_for_client for call in lane.calls)
        if waits and self.told != turn.round and not _done(lane.calls):
            self.told = turn.round
            commits.commit(lane, turn, turn_pb2.COMMIT_KIND_PARKED)
            return
        self._append_results(turn, answer)

    def _close(self, turn: Turn, newest: Entry) -> None:
        lane = self.world.lane
        if newest.kind == turn_pb2.ENTRY_KIND_ANSWER and newest.calls:
            self._append_results(turn, newest)
            return
        self._record(turn)
        settling = turn.state == turn_pb2.TURN_STATE_SETTLING
        kind = turn_pb2.COMMIT_KIND_SETTLED if settling else turn_pb2.COMMIT_KIND_INTERRUPTED
        commits.commit(lane, turn, kind)

    def _append_results(self, turn: Turn, answer: Entry) -> None:
        self.world.transcript.append(
            Entry(turn.turn_id, answer.round, turn_pb2.ENTRY_KIND_RESULTS, answer.calls)
        )

    def _results(self, lane: Lane, calls: list[turn_pb2.RoundCall]) -> None:
        known = {call.operation_id: call for call in lane.calls}
        results: list[turn_pb2.CallResult] = []
        stored: dict[str, bytes] = {}
        for call in calls:
            results.append(events.result(call, "x", is_error=True))
            position = known[call.operation_id].result_position
            if position is not None:
                stored[call.operation_id] = self.world.bodies[position]
        rounds.publish_results(lane, results, stored)

    def _record(self, turn: Turn, *, upto: int | None = None, answers: Any = ()) -> None:
        records = [
            turn_pb2.EntryRecord(
                entry_id=_id(entry),
                seq=index + 1,
                digest=_digest(entry),
                kind=entry.kind,
                operation_ids=[call.operation_id for call in entry.calls]
                if entry.kind == turn_pb2.ENTRY_KIND_RESULTS
                else [],
            )
            for index, entry in enumerate(self.world.transcript[:upto])
            if index >= self.world.lane.thread.head_seq
        ]
        rounds.record_entries(self.world.lane, turn, records, {}, answers)


_INPUT = turn_pb2.ENTRY_KIND_INPUT


def _done(calls: list[Call]) -> bool:
    return all(call.result_source != Source.NONE for call in calls)


def _id(entry: Entry) -> str:
    return ids.derived("entry", entry.turn_id, entry.round, entry.kind)


def _digest(entry: Entry) -> bytes:
    return sha256(_id(entry).encode()).digest()


def _sent(call: Call) -> turn_pb2.RoundCall:
    return turn_pb2.RoundCall(
        use_event_id=call.use_event_id, operation_id=call.operation_id, owner=call.owner
    )


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**64))
def test_random_schedules(seed: int) -> None:
    world = World(seed)
    messages = world.random.choice([1, 2, 3, 4])
    interrupts = world.random.choice([0, 0, 1, 2, 3])
    losses = world.random.choice([0.0, 0.08, 0.4])
    for _ in range(world.random.choice([40, 120, 200])):
        chance = world.random.random()
        if chance < 0.06 and messages:
            messages -= 1
            world.client(events.message("go"))
        elif chance < 0.12 and interrupts:
            interrupts -= 1
            world.client(events.interrupt())
        elif chance < 0.25:
            world.answer()
        elif chance < 0.25 + losses:
            world.lose()
        else:
            world.step()
    _drain(world)
    assert all(turn.state == DONE for turn in world.turns.values())
    assert not world.lane.running
    assert world.marked == set(world.queued), "an event stayed queued"
    assert set(world.results) == set(world.calls), "a call without a result"
    starts = [id_ for id_, name in world.events.items() if name == "span.model_request_start"]
    ends = [id_ for id_, name in world.events.items() if name == "span.model_request_end"]
    assert {ids.derived("event", "span end", start) for start in starts} == set(ends)


def _drain(world: World) -> None:
    """Nothing dies any more: everything must end."""
    world.client(events.message("last"))
    for _ in range(2000):
        world.answer()
        front = world.lane.front
        if front is None:
            return
        if front.state == turn_pb2.TURN_STATE_QUARANTINED:
            assert interrupt.release(world.lane, front.turn_id)
            world.apply()
        world.step()
    raise AssertionError("a turn never ends")
