"""Public errors of a turn. Pure: each is one `session.error` event with a deterministic id."""

from counterfoil.context.v1 import context_pb2
from counterfoil.ledger.v1 import events_pb2, session_events_pb2

from services.runner import names
from services.runner.adapter import ProviderFailure
from services.runner.turn import Turn

MODEL_REQUEST_FAILED = "model_request_failed_error"
TOOL_USE_LIMIT = "tool_use_limit_reached_error"
COMPACTION_LIMIT = "compaction_limit_reached_error"

_EXHAUSTED = session_events_pb2.RETRY_STATUS_TYPE_EXHAUSTED
_RETRYING = session_events_pb2.RETRY_STATUS_TYPE_RETRYING


def refused(turn: Turn, refusal: context_pb2.Refusal) -> events_pb2.Event:
    """The history with this input does not fit the model's window."""
    if refusal.reason == context_pb2.REFUSAL_REASON_COMPACTION_LIMIT:
        text = (
            "The history does not fit the model's window, and summaries do not make it small "
            "enough. This turn was taken out of the history; send a shorter message, or start a "
            "new session."
        )
        return _error(turn, "compaction", COMPACTION_LIMIT, text)
    text = (
        f"The request needs about {refusal.input_tokens_estimate} input tokens, and the model's "
        f"window of {refusal.window_tokens} leaves {refusal.input_tokens_limit}. This turn was "
        "taken out of the history; send a shorter message."
    )
    return _error(turn, "window", MODEL_REQUEST_FAILED, text)


def withheld(turn: Turn) -> events_pb2.Event:
    """The same, told by an owner that finds the turn already taken out."""
    text = (
        "The turn does not fit the model's window. It was taken out of the history; send a shorter "
        "message."
    )
    return _error(turn, "window", MODEL_REQUEST_FAILED, text)


def provider_failed(
    turn: Turn, failure: ProviderFailure, *, retrying: bool = False
) -> events_pb2.Event:
    """The provider brought no answer; `retrying`: it is asked again."""
    status = _RETRYING if retrying else _EXHAUSTED
    return _error(turn, failure.kind, failure.public_type, str(failure), status)


def window_full(turn: Turn) -> events_pb2.Event:
    """The answer reached the end of the model's window: a longer history does not fit."""
    text = (
        "The answer reached the end of the model's window and is not complete. This turn was taken "
        "out of the history; send a shorter message, or start a new session."
    )
    return _error(turn, "window", MODEL_REQUEST_FAILED, text)


def paused_too_often(turn: Turn, pauses_max: int) -> events_pb2.Event:
    """The provider paused without end."""
    text = (
        f"The model paused again after {pauses_max} continuations in a row; send a message to go "
        "on."
    )
    return _error(turn, "paused", MODEL_REQUEST_FAILED, text)


def cut_too_often(turn: Turn, cuts_max: int) -> events_pb2.Event:
    """The answer was longer than all its continuations."""
    text = (
        f"The answer reached the output limit again after {cuts_max} continuations in a row and is "
        "not complete; send a message to go on."
    )
    return _error(turn, "cut", MODEL_REQUEST_FAILED, text)


def too_many_rounds(turn: Turn, rounds_max: int) -> events_pb2.Event:
    """The model called tools without end."""
    text = f"The turn used {rounds_max} rounds of tool calls; send a message to go on."
    return _error(turn, "rounds", TOOL_USE_LIMIT, text)


def _error(
    turn: Turn,
    what: str,
    type_: str,
    text: str,
    status: "session_events_pb2.RetryStatusType.ValueType" = _EXHAUSTED,
) -> events_pb2.Event:
    retry_status = session_events_pb2.RetryStatus(type=status)
    detail = session_events_pb2.ErrorDetail(message=text, retry_status=retry_status)
    getattr(detail, type_).SetInParent()
    return events_pb2.Event(
        id=names.error_event(turn.id, turn.claim.epoch, what),
        session_error=session_events_pb2.SessionError(error=detail),
    )
