"""What a turn's owner writes: the transactions behind the turn service."""

from collections.abc import Sequence
from datetime import timedelta

from counterfoil.ledger.v1 import session_events_pb2, turn_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1 import reference_pb2

from foundation.errors import Failure, deleted, invalid, not_found
from services.ledger import (
    claiming,
    claims,
    commits,
    fork_store,
    fork_turn,
    lane_store,
    notices,
    rounds,
)
from services.ledger.change import Change
from services.ledger.desk import Decide
from services.ledger.lane import Source, Turn
from services.ledger.lanes import Lanes

_NO_COMMIT = turn_pb2.COMMIT_KIND_UNSPECIFIED
_WITH_ANSWERS = (commits.CONTINUE, commits.INTERRUPTED)


class TurnWrites:
    """Every method is one commit, may be repeated, and fails with FENCED under an old epoch."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    async def begin_round(self, request: turn_pb2.BeginRoundRequest) -> turn_pb2.BeginRoundResponse:
        """Row 5."""
        fence, attempt = request.fence, request.attempt
        if attempt.epoch != fence.epoch:
            raise invalid("attempt.epoch", f"must be {fence.epoch}, the epoch of the claim")
        response = turn_pb2.BeginRoundResponse()

        async def decide(change: Change) -> None:
            turn = claiming.owned(change.lane, request.turn_id, fence.epoch)
            compacted = await _unpublished(change, request.compaction_event_id)
            response.interrupted = not rounds.begin(change.lane, turn, request, compacted=compacted)

        change = await self._apply("ledger.begin_round", fence.thread, decide)
        response.position = change.head.position
        return response

    async def append_round(
        self, request: turn_pb2.AppendRoundRequest
    ) -> turn_pb2.AppendRoundResponse:
        """Row 9."""
        fence = request.fence
        response = turn_pb2.AppendRoundResponse()

        async def decide(change: Change) -> None:
            turn = await _owned_or_stored(
                change, request.turn_id, fence.epoch, request.round, request.commit
            )
            if not isinstance(turn, Turn):
                response.answer = turn
                return
            await _append(change, turn, request)
            response.answer = turn_pb2.COMMIT_ANSWER_UNSPECIFIED
            if request.commit != _NO_COMMIT and request.round == turn.round:
                said = commits.Said(refusal=_refusal(request))
                response.answer = commits.commit(
                    change.lane, turn, request.commit, request.stop_reason, said
                )
            elif turn.interrupted:
                response.answer = turn_pb2.COMMIT_ANSWER_INTERRUPTED
            await _load_answers(change, response.answer)

        change = await self._apply("ledger.append_round", fence.thread, decide)
        _fill(change, response)
        return response

    async def append_progress(
        self, request: turn_pb2.AppendProgressRequest
    ) -> turn_pb2.AppendProgressResponse:
        """Row 11."""
        fence = request.fence
        response = turn_pb2.AppendProgressResponse()

        async def decide(change: Change) -> None:
            turn = claiming.owned(change.lane, request.turn_id, fence.epoch)
            await change.load_past([result.operation_id for result in request.results])
            stored = await _owner_results(change, request.results)
            rounds.publish_results(change.lane, request.results, stored)
            await _record(change, turn, request.entries)
            response.interrupted = turn.interrupted

        change = await self._apply("ledger.append_progress", fence.thread, decide)
        response.position = change.head.position
        return response

    async def commit_turn(self, request: turn_pb2.CommitTurnRequest) -> turn_pb2.CommitTurnResponse:
        """Rows 6a, 12 and 15."""
        fence = request.fence
        response = turn_pb2.CommitTurnResponse()

        async def decide(change: Change) -> None:
            turn = await _owned_or_stored(
                change, request.turn_id, fence.epoch, request.round, request.kind
            )
            if not isinstance(turn, Turn):
                response.answer = turn
                return
            if request.round != turn.round:
                raise _gap(f"the newest published round is {turn.round}, not {request.round}")
            await _record_last(change, turn, request)
            response.answer = commits.commit(
                change.lane, turn, request.kind, request.stop_reason, _said(request)
            )
            await _load_answers(change, response.answer)

        change = await self._apply("ledger.commit_turn", fence.thread, decide)
        _fill(change, response)
        return response

    async def _apply(
        self, failpoint: str, thread: reference_pb2.ThreadRef, decide: Decide
    ) -> Change:
        async def on_thread(change: Change) -> None:
            if change.lane.session.thread_id != thread.thread_id:
                raise not_found("thread", thread.thread_id)
            if change.lane.thread.deleted:
                raise deleted(thread.thread_id)
            await decide(change)

        session = thread.workspace_id, thread.session_id
        change = await self._lanes.apply(failpoint, *session, on_thread)
        if change is None:
            raise not_found("thread", thread.thread_id)
        return change


async def _owned_or_stored(
    change: Change, turn_id: str, epoch: int, round_: int, kind: "turn_pb2.CommitKind.ValueType"
) -> "Turn | turn_pb2.CommitAnswer.ValueType":
    """The turn under a current claim, or the final answer that this commit got before."""
    try:
        return claiming.owned(change.lane, turn_id, epoch)
    except Failure:
        if kind == _NO_COMMIT:
            raise
        workspace_id = change.lane.session.workspace_id
        stored = await lane_store.commit_answer(
            change.reader, workspace_id, turn_id, epoch, round_, kind
        )
        if stored is None:
            raise
        return turn_pb2.CommitAnswer.ValueType(stored)


async def _unpublished(change: Change, event_id: str) -> bool:
    """Whether a compaction event is still to be published; the log is asked once while the lane is
    in memory, which is at least a claim long."""
    lane = change.lane
    if not event_id or event_id == lane.compaction_event_id:
        return False
    session = lane.session
    if not await lane_store.is_in_log(
        change.reader, session.workspace_id, session.session_id, notices.COMPACTED, event_id
    ):
        return True
    lane.compaction_event_id = event_id
    return False


async def _append(change: Change, turn: Turn, request: turn_pb2.AppendRoundRequest) -> None:
    """The round, once, between the entries before its answer and those from it on."""
    lane = change.lane
    workspace_id = lane.session.workspace_id
    stored: bytes | None = None
    if request.round <= turn.round:
        stored = await lane_store.answer_digest(
            change.reader, workspace_id, turn.turn_id, request.round
        )
    if rounds.repeated(turn, request, stored):
        await _record(change, turn, request.entries)
        return
    ids = [entry.entry_id for entry in request.entries]
    if request.answer_entry_id not in ids:
        raise _gap(f"entry {request.answer_entry_id} of the answer is not among the entries")
    place = ids.index(request.answer_entry_id)
    answer = request.entries[place]
    if answer.digest != request.answer_digest or answer.kind != turn_pb2.ENTRY_KIND_ANSWER:
        raise invalid(f"entries.{place}", "is not the answer that the request names")
    await _record(change, turn, request.entries[:place])
    rounds.publish_answer(lane, turn, request)
    await _record(change, turn, request.entries[place:], {request.answer_entry_id})


async def _record(
    change: Change,
    turn: Turn,
    records: Sequence[turn_pb2.EntryRecord],
    answers: Sequence[str] | set[str] = (),
) -> None:
    lane = change.lane
    known = [record.seq for record in records if record.seq <= lane.thread.head_seq]
    digests: dict[int, bytes] = {}
    if known:
        session = lane.session
        digests = await lane_store.entry_digests(
            change.reader, session.workspace_id, session.thread_id, known
        )
    rounds.record_entries(lane, turn, records, digests, answers)


async def _record_last(change: Change, turn: Turn, request: turn_pb2.CommitTurnRequest) -> None:
    """The entries that come with a commit."""
    source = await fork_store.source_of(change.reader, change.lane)
    if source is None:
        await _record(change, turn, request.entries)
    else:
        fork_turn.record(change.lane, turn, request.entries, source.head)


async def _owner_results(
    change: Change, results: Sequence[turn_pb2.CallResult]
) -> dict[str, bytes]:
    """Bodies of the results among these that owners published before, by operation."""
    lane = change.lane
    wanted = {result.operation_id for result in results}
    places = {
        call.operation_id: call.result_position
        for call in (*lane.past, *lane.calls)
        if call.operation_id in wanted
        and call.result_source == Source.OWNER
        and call.result_position is not None
    }
    if not places:
        return {}
    bodies = await change.bodies(places.values())
    return {operation_id: bodies[place] for operation_id, place in places.items()}


async def _load_answers(change: Change, answer: "turn_pb2.CommitAnswer.ValueType") -> None:
    if answer in _WITH_ANSWERS:
        change.lane.bodies |= await change.bodies(claims.answer_positions(change.lane))


def _said(request: turn_pb2.CommitTurnRequest) -> commits.Said:
    lost = request.lost_usage if request.HasField("lost_usage") else None
    retry_after = timedelta(milliseconds=request.retry_after_ms)
    return commits.Said(request.errors, lost, retry_after, _refusal(request), request.summary_usage)


def _refusal(
    request: turn_pb2.AppendRoundRequest | turn_pb2.CommitTurnRequest,
) -> session_events_pb2.StopDetails | None:
    return request.stop_details if request.HasField("stop_details") else None


def _fill(
    change: Change, response: turn_pb2.AppendRoundResponse | turn_pb2.CommitTurnResponse
) -> None:
    """Log point, and the answers so far for an owner that goes on, or closes and keeps them."""
    head = change.head
    response.position = head.position
    response.log_point.CopyFrom(claims.point(head))
    if response.answer in _WITH_ANSWERS:
        response.calls.extend(claims.calls(change.lane, change.lane.bodies))
        response.answer_system_bodies.extend(claims.systems(change.lane, change.lane.bodies))


def _gap(message: str) -> Failure:
    return Failure(reasons.ERROR_REASON_GAP, message)
