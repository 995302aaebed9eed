"""What was recorded of a thread's history as lost to the model: transitions and checkpoints. Pure.

`version` counts all records of a thread. Whoever records more names the version that it decided
on, and every snapshot is stored only at the version that it was made from.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from foundation.digests import digest
from services.context.checkpoints import Checkpoint
from services.context.transitions import Target, Transition

_DOMAIN = "counterfoil.transitions.v1"


@dataclass(frozen=True, slots=True)
class Losses:
    """All records of a thread up to some version."""

    version: int = 0
    count: int = 0
    """Transitions, in the order of their records."""
    digest: bytes = b""
    """Of their chain; empty while there are none."""
    transitions: Mapping[Target, tuple[Transition, ...]] = field(
        default_factory=lambda: MappingProxyType(dict[Target, tuple[Transition, ...]]())
    )
    checkpoint: Checkpoint | None = None
    """The one in force: the newest that is not revoked."""
    last_id: str = ""
    """The newest checkpoint, revoked or not: the next one's parent."""
    ordinal: int = 0
    """How many checkpoints there were."""
    revoked_through: int = 0
    """The last entry that the newest checkpoint covered, if that one is revoked; 0 if it is not."""
    is_copied: bool = False
    """The checkpoint was made by the session that this one was forked from."""

    @property
    def covered_through(self) -> int:
        """The last transcript entry that a checkpoint stands for; 0 for none."""
        return self.checkpoint.through_seq if self.checkpoint else 0

    def with_transitions(self, batch: Iterable[Transition], version: int) -> "Losses":
        """These and a batch behind them."""
        chains = dict(self.transitions)
        count, head = self.count, self.digest
        for one in batch:
            chains[one.target] = (*chains.get(one.target, ()), one)
            count, head = count + 1, digest(_DOMAIN, head, one.id.encode())
        return replace(
            self,
            version=version,
            count=count,
            digest=head,
            transitions=MappingProxyType(chains),
        )

    def with_checkpoint(self, one: Checkpoint, version: int) -> "Losses":
        """These and a checkpoint behind them."""
        return replace(
            self,
            version=version,
            checkpoint=one,
            last_id=one.id,
            ordinal=self.ordinal + 1,
            revoked_through=0,
            is_copied=False,
        )


NO_LOSSES = Losses()
"""Of a thread that nothing was taken from."""
