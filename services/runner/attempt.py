"""What one attempt at a round is known by."""

from dataclasses import dataclass

from counterfoil.journal.v1 import journal_pb2
from counterfoil.types.v1 import reference_pb2

from foundation import operations
from services.runner import names
from services.runner.turn import Turn


@dataclass(frozen=True, slots=True)
class Attempt:
    """A round's attempt; every id that its answer brings contains it."""

    turn_id: str
    round: int
    attempt: reference_pb2.Attempt

    @classmethod
    def next_of(cls, turn: Turn, round_: int) -> "Attempt":
        """A new attempt of the turn's owner."""
        return cls(turn.id, round_, turn.next_attempt())

    @property
    def operation_id(self) -> str:
        """Its provider call."""
        return operations.model_operation(self.turn_id, self.round, self.attempt)

    @property
    def span_id(self) -> str:
        """The public event of its start."""
        return names.span_event(self.turn_id, self.round, self.attempt)

    @property
    def scope(self) -> journal_pb2.RoundScope:
        """What the journal records operations under."""
        return journal_pb2.RoundScope(turn_id=self.turn_id, round=self.round, attempt=self.attempt)

    def summary_id(self, plan_id: str) -> str:
        """The provider call that writes a summary for it."""
        return operations.summary_operation(self.turn_id, self.round, self.attempt, plan_id)
