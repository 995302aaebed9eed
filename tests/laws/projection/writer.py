"""A process that records transitions and checkpoints of its own choice, right ones and wrong ones.

What it wants is judged by the same rules as everybody's, and stored through the same records."""

from collections.abc import Callable
from dataclasses import replace as replaced
from typing import Any

import msgspec

from foundation import canonical, projections
from services.context import checkpoints, planning, transitions
from services.context.losses import NO_LOSSES, Losses
from services.context.planning import current_of
from services.context.reducer import Item, reduce
from services.context.transitions import Current, Target, Transition
from tests.laws.projection import expected
from tests.laws.projection.authorities import KEY
from tests.laws.projection.play import RIVAL, Play

STORED = "stored"


class Writer:
    """Writes to the thread of a play."""

    def __init__(self, play: Play) -> None:
        self.play = play

    def losses(self) -> Losses:
        """All transitions, those of covered entries too, and the checkpoint in force."""
        now = self.play.losses()
        every = [row.transition for row in self.play.memory.rows() if row.transition]
        whole = NO_LOSSES.with_transitions(every, now.version)
        return replaced(now, transitions=whole.transitions)

    def items(self, now: Losses | None = None) -> tuple[Item, ...]:
        """All of history, what is covered too."""
        entries, skipped = self.play.entries, expected.skipped_ids(self.play.entries)
        kept = [e for e in entries if e.id not in skipped and not e.content.skipped_entry_ids]
        now = now or self.losses()
        return reduce(kept, self.play.memory.journal.projections, now).items

    def targets(self, *, covered: bool, tokens_min: int = 60) -> list[Target]:
        """Results that are still shown, or that a checkpoint covers."""
        losses = self.losses()
        found: list[Target] = []
        for item in self.items(losses):
            for result in item.results:
                target = Target(item.seq, result.use.block_index)
                current = current_of([item], losses, target)
                is_covered = item.seq <= losses.covered_through
                if current is not None and is_covered == covered and current.tokens >= tokens_min:
                    found.append(target)
        return found

    def decided(self, target: Target, losses: Losses | None = None) -> Transition:
        """A right transition of a result: a few words in its place."""
        losses = losses or self.losses()
        current = current_of(self.items(losses), losses, target)
        assert current is not None
        words = self.play.marked("less " * (current.tokens // 5))
        body = {"kind": "content", "parts": [{"kind": "text", "text": words}], "v": 1}
        if projections.read(current.body).is_error:
            body["is_error"] = True
        return self.made(target, current, canonical.encode(body))

    def made(self, target: Target, current: Current, body: bytes, reason: Any = "") -> Transition:
        reason = reason or "active_tool_result_archived"
        return transitions.transition(KEY, target, current.folded, body, reason)

    def write(self, *batch: Transition, losses: Losses | None = None, epoch: int = 0) -> str:
        """Have a batch judged and stored; what came of it."""
        now = self.losses()
        losses = losses or now
        try:
            planning.check_batch(batch, self.items(now), losses)
        except transitions.RefusedTransition as refused:
            return refused.reason
        records, epoch = self.play.memory.records, epoch or self.play.epoch
        work = records.record_transitions(KEY, epoch, RIVAL, losses, batch)
        return STORED if self.play.memory.run(work) is not None else "LOST"

    def refused(self, *batch: Transition, losses: Losses | None = None, epoch: int = 0) -> str:
        """The same for a batch that must not be stored."""
        before = self.play.memory.rows()
        why = self.write(*batch, losses=losses, epoch=epoch)
        assert why != STORED, [one.reason for one in batch]
        assert self.play.memory.rows() == before
        return why

    def cover(self, made: checkpoints.Checkpoint, losses: Losses) -> str:
        """Have a checkpoint judged and stored; what came of it."""
        try:
            checkpoints.check(made, losses.checkpoint, losses.last_id)
        except checkpoints.RefusedCheckpoint as refused:
            return refused.reason
        records = self.play.memory.records
        work = records.record_checkpoint(KEY, self.play.epoch, RIVAL, losses, made)
        return STORED if self.play.memory.run(work) is not None else "LOST"


def wrong_transitions(writer: Writer, target: Target) -> dict[str, Callable[[], list[Transition]]]:
    """What must be refused of a target that may be changed, by the rule that it breaks."""
    losses = writer.losses()
    current = current_of(writer.items(losses), losses, target)
    assert current is not None
    right = writer.decided(target, losses)

    def body(**members: Any) -> bytes:
        text = {"kind": "text", "text": "x"}
        is_error = {"is_error": True} if projections.read(current.body).is_error else {}
        return canonical.encode({"kind": "content", "parts": [text], "v": 1, **is_error, **members})

    def of(body: bytes, reason: Any = "") -> list[Transition]:
        return [writer.made(target, current, body, reason)]

    artifact = {"artifact_id": "art_other", "kind": "artifact", "media_type": "text/plain"}
    artifact |= {"sha256": "0" * 64, "size": 1}
    larger = "y" * (3 * current.tokens + 30)
    is_error = projections.read(current.body).is_error
    change = msgspec.structs.replace
    return {
        "STALE_SOURCE": lambda: [change(right, source_digest=bytes(32))],
        "ordinal": lambda: [change(right, ordinal=right.ordinal + 1)],
        "predecessor": lambda: [change(right, predecessor_id="mtr_other")],
        "NOT_SMALLER": lambda: of(body(parts=[{"kind": "text", "text": larger}])),
        "error flag": lambda: of(body(is_error=not is_error)),
        "new artifact": lambda: of(body(parts=[artifact])),
        "unknown member": lambda: of(body(extra=1)),
        "no projection": lambda: of(b"nonsense"),
        "digest": lambda: [change(right, replacement_digest=bytes(32))],
        "text for images": lambda: of(body(), "image_omitted_after_overflow"),
        "two at once": lambda: [right, change(right, id="mtr_twin")],
        "no such part": lambda: [change(right, part=99)],
    }
