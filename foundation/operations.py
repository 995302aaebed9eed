"""Ids of operations, and of what they lead to, that more than one service has to know."""

from functools import lru_cache

from counterfoil.types.v1.reference_pb2 import Attempt

from foundation import ids

_derived = lru_cache(maxsize=1024)(ids.derived)


def model_operation(turn_id: str, round_: int, attempt: Attempt) -> str:
    """Operation of the provider call that an attempt makes."""
    return _derived("operation", "model", turn_id, round_, attempt.epoch, attempt.number)


def summary_operation(turn_id: str, round_: int, attempt: Attempt, plan_id: str) -> str:
    """Operation of a provider call that writes a summary before an attempt's request."""
    return _derived("operation", "summary", turn_id, round_, attempt.epoch, attempt.number, plan_id)


def note_entry(operation_id: str) -> str:
    """Transcript entry that tells of an operation's late outcome."""
    return _derived("entry", "note", operation_id)


def block_event(turn_id: str, round_: int, attempt: Attempt, block_index: int) -> str:
    """Public event of a block of an answer (a use, a run of text beginning there, thinking)."""
    return _derived("event", "block", turn_id, round_, attempt.epoch, attempt.number, block_index)
