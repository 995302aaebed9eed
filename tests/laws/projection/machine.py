"""Draws what happens to a thread. One step in it is one thing that a user, a model, a tool, a
provider, another process or an accident does."""

import json

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from services.context.transitions import Transition
from tests.laws.projection import expected, records
from tests.laws.projection.authorities import THREAD
from tests.laws.projection.conversation import WINDOWS, Conversation, is_asked, is_idle
from tests.laws.projection.writer import STORED, wrong_transitions


class ProjectionMachine(Conversation):
    """A thread, its owner, and everybody who disturbs them."""

    # The provider

    @precondition(is_asked)
    @rule(data=st.data(), times=st.integers(1, 3))
    def provider_refuses(self, data: st.DataObject, times: int) -> None:
        """A request is too large after all: images go, then the beginning, then the turn."""
        if not self.prepared(data):
            return
        for place in range(times):
            before = self.memory.rows()
            if not self.prepared(data, self.play.made[-1].snapshot_id):
                return
            assert len(self.memory.rows()) > len(before)
            assert place < 2, "a third request after two recoveries"

    @precondition(is_idle)
    @rule(window=st.sampled_from(WINDOWS), model=st.sampled_from(("offline", "offline-b")))
    def profile_is_switched(self, window: int, model: str) -> None:
        self.play.window, self.play.model = window, model

    # Processes

    @rule()
    def restart(self) -> None:
        self.play.process = self.memory.process()

    @precondition(is_asked)
    @rule(data=st.data())
    def takeover(self, data: st.DataObject) -> None:
        """Another owner goes on; the old one writes nothing any more."""
        loser, old = self.play.process, self.play.epoch
        self.play.process, self.play.epoch = self.memory.process(), self.play.epoch + 1
        if not self.prepared(data):
            return
        self.play.number += 1
        assert self.play.fails(self.play.request(epoch=old), loser) == "FENCED"
        targets = self.writer.targets(covered=False)
        if targets:
            assert self.writer.refused(self.writer.decided(targets[-1]), epoch=old) == "LOST"

    @precondition(is_asked)
    @rule(data=st.data())
    def prepared_again(self, data: st.DataObject) -> None:
        """The same attempt has the same request, whoever asks (P5, P6)."""
        if not self.prepared(data):
            return
        made = self.play.made[-1]
        for process in (self.play.process, self.memory.process()):
            again = self.play.answered(self.play.request(), process).prepared
            assert (again.snapshot.id, again.body) == (made.snapshot_id, made.body)

    # Writers

    @rule(data=st.data())
    def right_transition(self, data: st.DataObject) -> None:
        targets = self.writer.targets(covered=False)
        if targets:
            one = self.writer.decided(data.draw(st.sampled_from(targets)))
            assert self.writer.write(one) == STORED
            self.play.process = self.memory.process()

    @rule(data=st.data())
    def stale_transition(self, data: st.DataObject) -> None:
        """What was decided before another record is refused: by its version, and by its source."""
        targets = self.writer.targets(covered=False)
        if not targets:
            return
        losses = self.writer.losses()
        target = data.draw(st.sampled_from(targets))
        first, second = self.writer.decided(target), self.writer.decided(target)
        assert self.writer.write(first) == STORED
        assert self.writer.refused(second, losses=losses)
        assert self.writer.refused(second) == "STALE_SOURCE"
        assert self.writer.refused(first, losses=losses)
        self.play.process = self.memory.process()

    @rule(data=st.data())
    def wrong_transition(self, data: st.DataObject) -> None:
        targets = self.writer.targets(covered=False)
        if targets:
            target = data.draw(st.sampled_from(targets))
            wrong = wrong_transitions(self.writer, target)
            for rule_broken in wrong:
                assert self.writer.refused(*wrong[rule_broken]()), rule_broken

    @rule(data=st.data())
    def covered_transition(self, data: st.DataObject) -> None:
        targets = self.writer.targets(covered=True)
        if targets:
            one = self.writer.decided(data.draw(st.sampled_from(targets)))
            assert self.writer.refused(one) == "TARGET_COVERED"

    @rule()
    def wrong_checkpoint(self) -> None:
        losses = self.writer.losses()
        if (last := losses.checkpoint) is None:
            return
        wrong = {
            "shorter": {"through_seq": last.through_seq - 1, "previous_id": last.id},
            "the same": {"previous_id": last.id},
            "beside": {"through_seq": last.through_seq + 1, "previous_id": last.previous_id},
            "larger": {
                "through_seq": last.through_seq + 1,
                "previous_id": last.id,
                "cause": "window",
                "tokens_after": last.tokens_before,
            },
            "too long": {
                "through_seq": last.through_seq + 1,
                "previous_id": last.id,
                "block": b"x" * 70_000,
            },
        }
        before = self.memory.rows()
        for name, members in wrong.items():
            made = msgspec.structs.replace(last, **{"cause": "window", **members})
            assert self.writer.cover(made, losses) != STORED, name
        assert self.memory.rows() == before

    # Accidents

    @rule(data=st.data(), field=st.sampled_from(("", "replacement", "source", "predecessor")))
    def corrupt_transition(self, data: st.DataObject, field: str) -> None:
        """A record that cannot be read withholds its target, and nothing else (P31)."""
        losses = self.writer.losses()
        shown = [
            one
            for row in self.memory.rows()
            if (one := row.transition) and one.seq > losses.covered_through
        ]
        if not shown:
            return
        one = data.draw(st.sampled_from(shown))
        self.memory.records.broken[one.id] = _broken(one, field)
        try:
            place = frozenset([(one.seq, one.part)])
            history = self.memory.history()
            head = self.memory.transcript.head
            warm = self.memory.run(history.past(THREAD, head, self.play.losses()))
            messages = json.loads(b"[" + warm.messages().joined + b"]")
            assert messages == expected.messages(
                self.play.entries,
                self.memory.journal.projections,
                self.memory.rows(),
                self.memory.artifacts.bodies,
                place,
            )
        finally:
            self.memory.records.broken.clear()

    @rule()
    def corrupt_checkpoint(self) -> None:
        """A checkpoint that cannot be read is an error; what it covers does not come back (I7)."""
        checkpoint = self.play.losses().checkpoint
        if checkpoint is None or not is_asked(self):
            return
        self.memory.records.broken[checkpoint.id] = None
        try:
            assert self.play.fails(self.play.request(), self.memory.process()) == "CORRUPT"
        finally:
            self.memory.records.broken.clear()

    @invariant()
    def records_are_chains(self) -> None:
        if hasattr(self, "play"):
            journal = self.memory.journal.projections
            records.check_chains(self.memory.rows(), self.play.entries, journal)


def _broken(one: Transition, field: str) -> Transition | None:
    match field:
        case "replacement":
            return msgspec.structs.replace(one, replacement=one.replacement[:-1] + b" ")
        case "source":
            return msgspec.structs.replace(one, source_digest=bytes(32))
        case "predecessor":
            return msgspec.structs.replace(one, predecessor_id="mtr_other")
        case _:
            return None
