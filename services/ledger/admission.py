"""Which client events are taken, and what they do. Pure; a refused member refuses its batch."""

from collections.abc import Sequence
from typing import NamedTuple

from counterfoil.ledger.v1 import client_events_pb2, events_pb2, turn_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation import idempotency, ids
from foundation.errors import Failure, invalid
from services.ledger import barrier, claims, interrupt, notices, refusals
from services.ledger.lane import OVER, Lane, Turn

BODIES_BYTES_MAX = 40 * 2**20
"""Bytes of events that a runner is given at once: a message and its system message, or all answers
to a round. They travel in one message, beside a runtime."""

RUNTIME_BYTES_MAX = 16 * 2**20
"""Bytes of what a session pins of its agent: system prompt and tools."""

_RESULTS = ("user_custom_tool_result",)
_MAY_LEAD_SYSTEM = ("user_message", *_RESULTS)


class Member(NamedTuple):
    """One event of a batch: where it stands in the request's JSON, the name of its union's set
    field, and its new event."""

    path: str
    variant: str
    event: events_pb2.Event


def members(events: Sequence[client_events_pb2.ClientEvent], root: str) -> list[Member]:
    """Give new ids to a batch; `root` is the JSON path of the list."""
    return [_member(f"{root}.{index}", index, event) for index, event in enumerate(events)]


def check(batch: Sequence[Member]) -> None:
    """Refuse what no state could take; raises INVALID_FIELD with the JSON path."""
    for index, member in enumerate(batch):
        refusals.check_supported(member.path, member.variant)
        match member.variant:
            case "user_message":
                refusals.check_message(member.path, member.event.user_message.content)
            case "user_custom_tool_result":
                _check_result(member)
            case "user_tool_confirmation":
                _check_confirmation(member)
            case "system_message":
                _check_system(batch, index)
            case _:
                pass


def check_initial(batch: Sequence[Member]) -> None:
    """Refuse what a new session does not take: everything but messages."""
    for member in batch:
        if member.variant != "user_message":
            raise invalid(f"{member.path}.type", "initial events are user.message only")
    check(batch)


def admit(lane: Lane, batch: Sequence[Member]) -> list[int]:
    """Apply a checked batch in order; log positions of the events.

    Raises ACTION_REFUSED or INVALID_FIELD with the JSON path; the lane is then not to be stored.
    """
    positions: list[int] = []
    answered = False
    for index, member in enumerate(batch):
        match member.variant:
            case "user_message":
                positions.append(_message(lane, member.event))
            case "user_interrupt":
                _check_thread(lane, member)
                positions.append(interrupt.submit(lane, member.event))
            case "user_custom_tool_result":
                positions.append(barrier.answer_result(lane, member.path, member.event))
                answered = True
            case "user_tool_confirmation":
                positions.append(barrier.answer_confirmation(lane, member.path, member.event))
                answered = True
            case "system_message":
                positions.append(_system(lane, batch[index - 1], member))
            case _:
                raise invalid(f"{member.path}.type", "this event type is not taken")
    _conclude(lane, answered)
    return positions


def new_answers(lane: Lane) -> bool:
    """Whether the round got an answer in this transaction."""
    return max(claims.answer_positions(lane), default=0) > lane.log.position


def check_size(lane: Lane, answers_before: int = 0) -> None:
    """Refuse what no runner could be given; `answers_before` are bytes of earlier answers to the
    round. Raises TOO_LARGE; the lane is then not to be stored."""
    if answers_before + sum(map(len, lane.bodies.values())) <= BODIES_BYTES_MAX:
        return
    inputs = (claims.input_positions(turn) for turn in lane.turns)
    for positions in inputs:
        _check_bytes(sum(_new_bytes(lane, position) for position in positions), "a message")
    if new_answers(lane):
        answers = sum(_new_bytes(lane, one) for one in claims.answer_positions(lane))
        _check_bytes(answers_before + answers, "all answers that the session waits for")


def _new_bytes(lane: Lane, position: int) -> int:
    return len(lane.bodies.get(position, b""))


def _check_bytes(found: int, what: str) -> None:
    if found > BODIES_BYTES_MAX:
        raise Failure(
            reasons.ERROR_REASON_TOO_LARGE,
            f"{what} may hold {BODIES_BYTES_MAX} bytes together, got {found}",
        )


def _conclude(lane: Lane, answered: bool) -> None:
    """What a batch leaves behind: a resumed turn, a new announcement, a running session."""
    front = lane.front
    if front is not None and front.state == turn_pb2.TURN_STATE_PARKED:
        if not barrier.open_calls(lane):
            front.state = turn_pb2.TURN_STATE_QUEUED
        elif answered:
            barrier.announce(lane)
    if lane.waiting is not None and any(
        turn.input_position > lane.log.position for turn in lane.turns
    ):
        interrupt.try_again(lane)
    lane.refresh_claimable()
    if lane.thread.claimable_at is None or not _has_public_work(lane):
        return
    # A message that queues behind a turn that waits for its retry changes nothing of that.
    if front is None or front.state != turn_pb2.TURN_STATE_RESCHEDULING:
        notices.run(lane)


def _has_public_work(lane: Lane) -> bool:
    """Whether something runs or will run that clients have not seen the end of."""
    return any(turn.state not in OVER for turn in lane.turns)


def _message(lane: Lane, event: events_pb2.Event) -> int:
    position = lane.queue(event)
    turn_id = ids.derived("turn", lane.session.session_id, event.id)
    lane.turns.append(Turn(turn_id=turn_id, input_position=position, input_event_id=event.id))
    return position


def _system(lane: Lane, before: Member, member: Member) -> int:
    """The message goes with the turn, or with the answer, directly before it."""
    front = lane.front
    if before.variant not in _RESULTS:
        if front is not None and front.state == turn_pb2.TURN_STATE_PARKED:
            raise invalid(
                member.path, "while the session waits for answers, only behind a tool result"
            )
        turn = lane.turns[-1]
        turn.system_event_id = member.event.id
        turn.system_position = lane.queue(member.event)
        return turn.system_position
    use_id = before.event.user_custom_tool_result.custom_tool_use_id
    return barrier.attach_system(lane, member.path, use_id, member.event)


def _check_thread(lane: Lane, member: Member) -> None:
    named = member.event.user_interrupt
    if named.HasField("session_thread_id") and named.session_thread_id != lane.session.thread_id:
        path = f"{member.path}.session_thread_id"
        raise invalid(path, f"the session has no thread {named.session_thread_id}")


def _check_result(member: Member) -> None:
    result = member.event.user_custom_tool_result
    refusals.refuse_thread(member.path, result.HasField("session_thread_id"))
    refusals.check_result(member.path, result.content)


def _check_confirmation(member: Member) -> None:
    confirmation = member.event.user_tool_confirmation
    refusals.refuse_thread(member.path, confirmation.HasField("session_thread_id"))
    denied = confirmation.result == client_events_pb2.CONFIRMATION_RESULT_DENY
    if confirmation.HasField("deny_message") and not denied:
        raise invalid(f"{member.path}.deny_message", 'only with result "deny"')


def _check_system(batch: Sequence[Member], index: int) -> None:
    member = batch[index]
    content = member.event.system_message.content
    refusals.check_texts(member.path, content, "a system message takes text blocks only")
    refusals.check_not_empty(member.path, content)
    if index != len(batch) - 1:
        raise invalid(member.path, "a system.message must be the last event of its request")
    if index == 0 or batch[index - 1].variant not in _MAY_LEAD_SYSTEM:
        raise invalid(
            member.path,
            "a system.message must directly follow a user.message or a user.custom_tool_result",
        )


def _member(path: str, index: int, event: client_events_pb2.ClientEvent) -> Member:
    made = events_pb2.Event(id=idempotency.new_id("event", index))
    variant = event.WhichOneof("event")
    if variant is None:
        return Member(path, "", made)
    getattr(made, variant).CopyFrom(getattr(event, variant))
    return Member(path, variant, made)
