"""The first turn of a fork: it has no input, and its owner copies the history. Pure.

It is publicly over from the start, as a turn that is only left to be settled: input queues behind
it, nothing of it is published, archive and deletion do not wait for it, and one that keeps failing
gets one more attempt with each new input.
"""

from collections.abc import Sequence

from counterfoil.ledger.v1 import turn_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1 import reference_pb2

from foundation.errors import Failure
from services.ledger.lane import Entry, Lane, Turn

SETTLING = turn_pb2.TURN_STATE_SETTLING


def begin(lane: Lane, turn_id: str) -> None:
    """Queue the turn before everything else on the thread."""
    turn = Turn(turn_id=turn_id, input_position=0, input_event_id="", state=SETTLING, released=True)
    lane.turns.insert(0, turn)
    lane.refresh_claimable()


def record(
    lane: Lane, turn: Turn, records: Sequence[turn_pb2.EntryRecord], cut: reference_pb2.Head
) -> None:
    """The history was copied: its last entry is the transcript's recorded head. Raises GAP unless
    it is the one at the cut."""
    if [one.seq for one in records] != [cut.seq]:
        raise Failure(
            reasons.ERROR_REASON_GAP, f"the copied history ends with entry {cut.seq} of its source"
        )
    (last,) = records
    lane.thread.head_seq, lane.thread.head_digest = last.seq, last.digest
    lane.new_entries.append(Entry(turn.turn_id, last.seq, last.entry_id, last.kind, last.digest))
