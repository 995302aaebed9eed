"""What a turn's owner publishes: attempts, answers, results, and the entries behind them. Pure."""

from collections.abc import Collection, Mapping, Sequence

from counterfoil.ledger.v1 import events_pb2, turn_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1 import runtime_pb2

from foundation.errors import Failure, invalid
from services.ledger import barrier, notices
from services.ledger.lane import OVER, Call, Entry, Lane, Round, Source, Turn
from services.ledger.log_writer import render

_ANSWER_EVENTS = ("agent_thinking", "agent_message", "agent_tool_use", "agent_custom_tool_use")
_USE_EVENTS = ("agent_tool_use", "agent_custom_tool_use")

OPEN = turn_pb2.CALL_STATE_OPEN
CLOSED = turn_pb2.CALL_STATE_CLOSED


def begin(lane: Lane, turn: Turn, request: turn_pb2.BeginRoundRequest, *, compacted: bool) -> bool:
    """Register an attempt before its first byte; False when an interrupt waits: do not send.

    `compacted` says that the request's compaction event is not in the log. A repeat, also a late
    one, changes nothing.
    """
    round_, attempt = request.round, request.attempt
    if turn.state != turn_pb2.TURN_STATE_RUNNING:
        raise _gap("a turn that is publicly over asks nothing more")
    if turn.interrupted:
        return False
    if round_ <= turn.round:
        return True
    if round_ != turn.round + 1:
        raise _gap(f"round {round_} cannot begin: round {turn.round + 1} was not published")
    begun = (turn.attempt_round, turn.attempt_epoch, turn.attempt_number)
    if (round_, attempt.epoch, attempt.number) > begun:
        if compacted:
            notices.compacted(lane, turn, request.compaction_event_id)
        notices.open_span(lane, turn, round_, attempt, request.span_event_id)
        notices.count(lane.session, request.summary_usage)
    return True


def publish_answer(lane: Lane, turn: Turn, request: turn_pb2.AppendRoundRequest) -> None:
    """Add a new round: its events, calls, span end and usage. An interrupt closes its actions."""
    _check_answer(turn, request)
    number = request.round
    attempt = request.attempt
    begun = (turn.attempt_round, turn.attempt_epoch, turn.attempt_number)
    answered = (number, attempt.epoch, attempt.number)
    if answered > begun:
        notices.open_span(lane, turn, number, attempt, request.span_event_id)
    for event in request.events:
        lane.publish(event)
    # An older attempt's span was closed as an error when a newer one began; that one is lost now.
    notices.close_span(lane, turn, request.usage if answered >= begun else None)
    turn.round, turn.round_open = number, bool(request.calls)
    turn.takeovers, turn.retries, turn.continued_epoch = 0, 0, 0
    lane.next_round()
    lane.calls = [_call(turn, place, call) for place, call in enumerate(request.calls)]
    lane.new_rounds.append(
        Round(
            turn.turn_id,
            number,
            request.answer_entry_id,
            request.answer_digest,
            attempt.epoch,
            attempt.number,
        )
    )


def publish_results(
    lane: Lane, results: Sequence[turn_pb2.CallResult], stored: Mapping[str, bytes]
) -> None:
    """Add public results, each once; `stored` are the bodies of those that owners published before.

    A call that has one keeps it: a client's and the ledger's own win over the owner's, and of the
    owner's a repeat must be equal. Raises GAP for unknown calls, DIGEST_MISMATCH for another
    result.
    """
    known = {call.operation_id: call for call in (*lane.past, *lane.calls)}
    for result in results:
        call = known.get(result.operation_id)
        if call is None:
            raise _gap(f"no published round has a call {result.operation_id}")
        if call.result_source == Source.NONE:
            _check_result(call, result.event)
            call.result_source, call.result_event_id = Source.OWNER, result.event.id
            call.result_position = lane.publish(result.event)
        elif call.result_source == Source.OWNER and stored.get(result.operation_id) != render(
            result.event
        ):
            raise Failure(
                reasons.ERROR_REASON_DIGEST_MISMATCH,
                f"{result.operation_id} was published with another result",
            )


def record_entries(
    lane: Lane,
    turn: Turn,
    records: Sequence[turn_pb2.EntryRecord],
    recorded: dict[int, bytes],
    answers: Collection[str] = (),
) -> None:
    """Record transcript entries behind the recorded head, in order and without gaps.

    `recorded` are digests by sequence of those that were recorded before, `answers` the entry ids
    of answers that may be among them. Raises GAP for a skipped entry, for an answer that was not
    published and a results entry whose results were not; DIGEST_MISMATCH for another entry at a
    recorded place.
    """
    thread = lane.thread
    for record in records:
        if record.seq <= thread.head_seq:
            if recorded.get(record.seq, record.digest) != record.digest:
                raise Failure(
                    reasons.ERROR_REASON_DIGEST_MISMATCH,
                    f"entry {record.seq} was recorded with another digest",
                )
            continue
        if record.seq != thread.head_seq + 1:
            raise _gap(f"entry {thread.head_seq + 1} was not recorded")
        if record.kind == turn_pb2.ENTRY_KIND_ANSWER and record.entry_id not in answers:
            raise _gap(f"entry {record.seq} is an answer that was not published")
        if record.kind == turn_pb2.ENTRY_KIND_RESULTS:
            _record_results(lane, turn, record)
        thread.head_seq, thread.head_digest = record.seq, record.digest
        lane.new_entries.append(
            Entry(turn.turn_id, record.seq, record.entry_id, record.kind, record.digest)
        )


def repeated(turn: Turn, request: turn_pb2.AppendRoundRequest, stored: bytes | None) -> bool:
    """Whether the round was published before; DIGEST_MISMATCH when with another answer."""
    if request.round > turn.round:
        return False
    if stored != request.answer_digest:
        raise Failure(
            reasons.ERROR_REASON_DIGEST_MISMATCH,
            f"round {request.round} was recorded with another digest",
        )
    return True


def _record_results(lane: Lane, turn: Turn, record: turn_pb2.EntryRecord) -> None:
    public = {call.operation_id for call in lane.calls if call.result_source != Source.NONE}
    for operation_id in record.operation_ids:
        if operation_id not in public:
            raise _gap(f"the result of {operation_id} was not published")
    missing = [call for call in lane.calls if call.operation_id not in record.operation_ids]
    if missing:
        raise _gap(f"entry {record.seq} has no result of {missing[0].operation_id}")
    barrier.mark_handled(lane)
    turn.round_open, turn.takeovers, turn.retries = False, 0, 0


def _check_answer(turn: Turn, request: turn_pb2.AppendRoundRequest) -> None:
    if request.round != turn.round + 1 or turn.round_open:
        raise _gap(f"round {request.round} cannot follow: round {turn.round} is not complete")
    uses: list[str] = []
    for index, event in enumerate(request.events):
        variant = event.WhichOneof("event")
        if variant not in _ANSWER_EVENTS:
            raise invalid(f"events.{index}", f"an answer has no {variant} event")
        if not event.id:
            raise invalid(f"events.{index}.id", "must not be empty")
        if variant in _USE_EVENTS:
            uses.append(event.id)
    if uses != [call.use_event_id for call in request.calls]:
        raise invalid("calls", "must be the calls of the use events, in their order")


def _call(turn: Turn, place: int, sent: turn_pb2.RoundCall) -> Call:
    call = Call(
        turn_id=turn.turn_id,
        round=turn.round,
        place=place,
        block_index=sent.block_index,
        use_event_id=sent.use_event_id,
        operation_id=sent.operation_id,
        owner=sent.owner,
        policy=sent.policy,
        name=sent.name,
        state=turn_pb2.CALL_STATE_NONE,
    )
    if call.waits_for_client:
        call.state = CLOSED if turn.interrupted or turn.state in OVER else OPEN
    return call


def _check_result(call: Call, event: events_pb2.Event) -> None:
    variant = event.WhichOneof("event")
    if not event.id:
        raise invalid("results.event.id", "must not be empty")
    if call.owner == runtime_pb2.TOOL_OWNER_CLIENT_CUSTOM:
        named = event.user_custom_tool_result.custom_tool_use_id
        fits = variant == "user_custom_tool_result" and event.user_custom_tool_result.is_error
        if fits and call.state != CLOSED:
            raise _gap(f"{call.operation_id} was not closed: only a client answers it")
    else:
        named = event.agent_tool_result.tool_use_id
        fits = variant == "agent_tool_result"
        if call.state == OPEN:
            raise _gap(f"{call.operation_id} waits for a confirmation")
    if not fits or named != call.use_event_id:
        raise invalid("results.event", f"is not a result of {call.use_event_id}")


def _gap(message: str) -> Failure:
    return Failure(reasons.ERROR_REASON_GAP, message)
