"""Ids of everything that a retry could create again.

Entries of a turn are named by turn, round and role, without the attempt: the first append decides
a round's answer. What depends on an answer (spans, events, operations of its calls) contains the
attempt; so do provider calls (`foundation/operations.py`).
"""

from functools import lru_cache

from counterfoil.types.v1 import reference_pb2

from foundation import ids

Attempt = reference_pb2.Attempt

# An answer's ids are asked for when it is previewed, stored and published.
_derived = lru_cache(maxsize=1024)(ids.derived)


def input_entry(turn_id: str) -> str:
    """Transcript entry of a turn's input."""
    return _derived("entry", "input", turn_id)


def answer_entry(turn_id: str, round_: int) -> str:
    """Transcript entry of a round's answer."""
    return _derived("entry", "answer", turn_id, round_)


def results_entry(turn_id: str, round_: int) -> str:
    """Transcript entry of a round's results."""
    return _derived("entry", "results", turn_id, round_)


def continue_entry(turn_id: str, round_: int) -> str:
    """Transcript entry that lets the cut-off answer of a round go on."""
    return _derived("entry", "continue", turn_id, round_)


def withheld_entry(turn_id: str) -> str:
    """Transcript entry that takes a turn out of the history, because no request could hold it."""
    return _derived("entry", "withheld", turn_id)


def abandoned_entry(turn_id: str, epoch: int) -> str:
    """Transcript entry that skips what lies beyond the committed head after a restored backup."""
    return _derived("entry", "abandoned", turn_id, epoch)


def tool_operation(turn_id: str, round_: int, attempt: Attempt, block_index: int) -> str:
    """Operation of a tool call of the answer that `attempt` brought."""
    return _derived(
        "operation", "tool", turn_id, round_, attempt.epoch, attempt.number, block_index
    )


def span_event(turn_id: str, round_: int, attempt: Attempt) -> str:
    """Public event of a model request's start."""
    return _derived("event", "span", turn_id, round_, attempt.epoch, attempt.number)


def compaction_event(thread_id: str, compaction_id: str) -> str:
    """Public event that a checkpoint stands for the beginning of a thread's history."""
    return _derived("event", "compaction", thread_id, compaction_id)


def result_event(operation_id: str) -> str:
    """Public event of a call's result."""
    return _derived("event", "result", operation_id)


def error_event(turn_id: str, epoch: int, what: str) -> str:
    """Public event of a turn's error; a claim reports each kind once."""
    return _derived("event", "error", turn_id, epoch, what)
