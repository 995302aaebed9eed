"""What a claim hands to a runner, and what some commits hand back. Pure."""

from collections.abc import Mapping

from counterfoil.ledger.v1 import turn_pb2
from counterfoil.types.v1 import reference_pb2, runtime_pb2

from services.ledger.lane import Answer, Call, Lane, Turn
from services.ledger.log_writer import LogHead


def positions(lane: Lane) -> list[int]:
    """Log positions of the bodies that a claim on the front turn carries: its input until a round
    was published, the answers of the round behind that."""
    turn = lane.turns[0]
    if turn.copies_history:
        return []
    return answer_positions(lane) if turn.round >= 0 else input_positions(turn)


def input_positions(turn: Turn) -> list[int]:
    """Log positions of a turn's input and its companion."""
    found = (turn.input_position, turn.system_position)
    return [position for position in found if position is not None]


def answer_positions(lane: Lane) -> list[int]:
    """Log positions of the answers to the open round, and of the messages that came with them."""
    answers = [call.answer_position for call in lane.calls if call.answer != Answer.NONE]
    systems = [call.system_position for call in lane.calls]
    return [position for position in (*answers, *systems) if position is not None]


def message(
    lane: Lane,
    takeover: bool,
    head: LogHead,
    bodies: Mapping[int, bytes],
    runtime: runtime_pb2.SessionRuntime,
    fork: turn_pb2.ForkSource | None = None,
) -> turn_pb2.Claim:
    """The claim on the front turn; `bodies` are stored events by position, `head` the log's,
    `fork` is what a turn copies that copies history."""
    turn, thread = lane.turns[0], lane.thread
    given = turn_pb2.TurnInput(
        event_id=turn.input_event_id, system_event_id=turn.system_event_id or ""
    )
    if turn.round < 0 and fork is None:
        given.body = bodies[turn.input_position]
        if turn.system_position is not None:
            given.system_body = bodies[turn.system_position]
    return turn_pb2.Claim(
        thread=lane.thread_ref,
        turn_id=turn.turn_id,
        epoch=thread.epoch,
        takeover=takeover,
        state=turn.state,
        interrupted=turn.interrupted,
        input=given,
        round=turn.round,
        calls=calls(lane, bodies),
        answer_system_bodies=systems(lane, bodies),
        transcript_head=reference_pb2.Head(seq=thread.head_seq, digest=thread.head_digest),
        log_point=point(head),
        runtime=runtime,
        rounds_used=turn.round + 1,
        settled_reason=turn.stop_reason,
        traceparent=turn.traceparent,
        retries=turn.retries,
        fork=fork,
    )


def calls(lane: Lane, bodies: Mapping[int, bytes]) -> list[turn_pb2.RoundCall]:
    """The calls of the open round in use order, with their answers."""
    return [_call(call, bodies) for call in lane.calls]


def systems(lane: Lane, bodies: Mapping[int, bytes]) -> list[bytes]:
    """The system messages that came with the answers, in the order of their arrival."""
    positions = [call.system_position for call in lane.calls if call.system_position is not None]
    return [bodies[position] for position in sorted(positions)]


def point(head: LogHead) -> turn_pb2.LogPoint:
    """A log head as the contract writes it."""
    return turn_pb2.LogPoint(position=head.position, digest=head.digest)


def _call(call: Call, bodies: Mapping[int, bytes]) -> turn_pb2.RoundCall:
    sent = turn_pb2.RoundCall(
        use_event_id=call.use_event_id,
        operation_id=call.operation_id,
        block_index=call.block_index,
        owner=call.owner,
        policy=call.policy,
        name=call.name,
        state=call.state,
        result_event_id=call.result_event_id or "",
    )
    if call.answer_position is None:
        return sent
    if call.answer != Answer.NONE:
        sent.answer_body = bodies[call.answer_position]
    digest = call.answer_digest or b""
    sent.answered_at.CopyFrom(turn_pb2.LogPoint(position=call.answer_position, digest=digest))
    return sent
