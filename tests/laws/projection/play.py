"""Plays a thread: appends what a runner would, prepares requests, and judges everything that comes
of it. Knows the rules of the protocol, and no code that they are about."""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from counterfoil.context.v1 import context_pb2 as pb
from counterfoil.transcript.v1 import transcript_pb2
from counterfoil.types.v1 import runtime_pb2
from counterfoil.types.v1.capability_pb2 import CapabilityProfile
from counterfoil.types.v1.reference_pb2 import Attempt, Fence, Head

from foundation.errors import Failure, name_of
from services.context import materializer, preparing, shrinking, summary
from services.context.losses import Losses
from services.context.reducer import Item
from tests.laws.projection import expected, records
from tests.laws.projection.authorities import KEY, THREAD, Crash, Memory, Row
from tests.services.context.conftest import runtime
from tests.services.context.histories import ANSWER, INPUT, RESULTS, WITHHELD, projection_of, text

Response = pb.PrepareRequestResponse

RIVAL = ("turn_rival", 0)
"""The turn of records that a rival process writes."""


@dataclass(frozen=True)
class Made:
    """A request that was prepared, with all that it was made of."""

    snapshot_id: str
    head: Head
    version: int
    body: bytes
    placed: list[tuple[int, expected.Json]]
    skipped: set[str]
    """Entries that were out of history then."""
    profile: tuple[str, int]


@dataclass(repr=False)
class Play:
    """One thread and the process that owns it."""

    memory: Memory
    window: int
    prunes: bool
    image_budget: int = materializer.IMAGE_BYTES_MAX
    summaries: Callable[[int], str] = lambda bytes_max: ""
    """What the model writes when it is asked for a summary."""
    epoch: int = 1
    number: int = 0
    turn: int = 0
    round: int = 0
    model: str = "offline"
    begin: int = 0
    """Entries in front of the turn."""
    phase: str = "idle"
    known: list[pb.KnownResult] = field(default_factory=list)
    made: list[Made] = field(default_factory=list)
    _marked: int = 0
    _judged: int = 0
    """Rows that were judged."""
    _covered: dict[str, int] = field(default_factory=dict)
    """How long the transcript was when a checkpoint was made."""
    _is_watching: bool = True
    _fresh_turn: int = 0
    """A turn that has to fit, because it is small."""

    def __post_init__(self) -> None:
        self.process = self.memory.process()
        self._extended = summary.extended
        self._patched = ExitStack()
        self._patched.enter_context(patch.object(summary, "extended", self._summarized))
        for module in (materializer, preparing, shrinking):
            budget = patch.object(module, "IMAGE_BYTES_MAX", self.image_budget)
            self._patched.enter_context(budget)
        budget = patch.object(expected, "IMAGE_BUDGET", self.image_budget)
        self._patched.enter_context(budget)

    def close(self) -> None:
        self._patched.close()

    # What was said

    @property
    def turn_id(self) -> str:
        return f"turn_{self.turn}"

    @property
    def entries(self) -> list[transcript_pb2.Entry]:
        return self.memory.transcript.entries

    def marked(self, said: str) -> str:
        """Words between two marks that nothing else has."""
        self._marked += 1
        return f"<m{self._marked}.a> {said} <m{self._marked}.z>"

    def say(self, *blocks: bytes, is_small: bool) -> None:
        assert self.phase == "idle"
        self.turn, self.round, self.phase = self.turn + 1, 0, "asked"
        self.begin = len(self.entries)
        self._fresh_turn = self.turn if is_small else 0
        self.memory.transcript.append(INPUT, self.turn_id, blocks=blocks)

    def answer(self, *blocks: bytes, usage: dict[str, int] | None = None) -> transcript_pb2.Entry:
        self.known = []
        return self.memory.transcript.append(
            ANSWER,
            self.turn_id,
            blocks=blocks,
            envelope=json.dumps({"usage": usage}).encode() if usage else b"{}",
            snapshot_id=self.made[-1].snapshot_id,
        )

    def results(self, bodies: Sequence[bytes], trailing: Sequence[bytes], order: list[int]) -> None:
        """The results of the last answer; `order` is in which they were committed."""
        answer = self.entries[-1]
        uses = [i for i, block in enumerate(answer.content.blocks) if b'"tool_use"' in block]
        references: dict[int, transcript_pb2.ResultReference] = {}
        for place in order:
            one = projection_of(bodies[place])
            id = f"op_{answer.seq}_{uses[place]}"
            self.memory.journal.projections[id] = one
            references[place] = transcript_pb2.ResultReference(
                operation_id=id, block_index=uses[place], projection_digest=one.digest
            )
            self.known.append(pb.KnownResult(operation_id=id, projection=one.body))
        self.memory.transcript.append(
            RESULTS,
            self.turn_id,
            results=[references[place] for place in range(len(uses))],
            trailing_blocks=trailing,
        )
        self.round, self.number = self.round + 1, 0

    def withhold(self) -> None:
        """The turn is taken out of history, as one whose request cannot be made."""
        ids = [entry.id for entry in self.entries[self.begin :]]
        self.memory.transcript.append(WITHHELD, self.turn_id, skipped_entry_ids=ids)
        self.phase = "idle"

    # What is asked

    def runtime(self) -> runtime_pb2.SessionRuntime:
        profile = CapabilityProfile(
            id="offline", version=1, adapter="messages", window_tokens=self.window
        )
        tools = [
            runtime_pb2.ToolBinding(name="t", input_schema=b'{"type":"object"}'),
            runtime_pb2.ToolBinding(
                name="read_archive",
                owner=runtime_pb2.TOOL_OWNER_PLATFORM_MANAGED,
                input_schema=b'{"type":"object"}',
            ),
        ]
        return runtime(model=self.model, profile=profile, tools=tools[: 2 if self.prunes else 1])

    def request(self, overflowed: str = "", epoch: int = 0) -> pb.PrepareRequestRequest:
        epoch = epoch or self.epoch
        return pb.PrepareRequestRequest(
            fence=Fence(thread=THREAD, epoch=epoch),
            turn_id=self.turn_id,
            round=self.round,
            attempt=Attempt(epoch=epoch, number=self.number),
            transcript_head=self.memory.transcript.head,
            runtime=self.runtime(),
            known_results=self.known,
            overflowed_snapshot_id=overflowed,
        )

    def prepare(self, overflowed: str = "") -> bool:
        """Prepare the next attempt and judge it; False when it was refused, and the turn is out of
        history then."""
        self.number += 1
        request = self.request(overflowed)
        try:
            response = self.answered(request, self.process)
        except Crash:
            self.process = self.memory.process()
            response = self.answered(request, self.process)
        self._judge_rows(is_overflow=bool(overflowed))
        if response.HasField("refused"):
            assert self._fresh_turn != self.turn or overflowed, "a small turn cannot go on"
            self.withhold()
            return False
        self._judge(response.prepared)
        return True

    def answered(self, request: pb.PrepareRequestRequest, process: Any) -> Response:
        """What comes of a request when the model writes the summaries that are asked for."""
        for _ in range(4):
            response = self.memory.run(process.prepare(request))
            if not response.HasField("summary_needed"):
                return response
            self._judge_summary_request(response.summary_needed.request)
            wanted = response.summary_needed.plan_id
            said = self.summaries(4_000)
            request.summary.CopyFrom(
                pb.ModelSummary(plan_id=wanted, text=said, operation_id=f"op_{wanted}")
            )
        raise AssertionError("a summary is asked for again and again")

    def fails(self, request: pb.PrepareRequestRequest, process: Any = None) -> str:
        """The reason for which a request is not prepared; nothing is stored then."""
        before = self.memory.rows(), self.memory.snapshot_count()
        self._is_watching = False  # who has lost the thread may plan on what it knew
        try:
            self.memory.run((process or self.process).prepare(request))
        except Failure as failure:
            assert (self.memory.rows(), self.memory.snapshot_count()) == before
            return name_of(failure.reason)
        finally:
            self._is_watching = True
        raise AssertionError("it was prepared")

    # What came of it

    def placed(self, rows: Sequence[Row], through: int) -> list[tuple[int, expected.Json]]:
        journal, blobs = self.memory.journal.projections, self.memory.artifacts.bodies
        return expected.placed(self.entries[:through], journal, rows, blobs)

    def gone(self) -> set[str]:
        """Marks that nobody may see again."""
        return expected.gone(self.entries, self.memory.journal.projections, self.memory.rows())

    def _judge(self, prepared: pb.PreparedRequest) -> None:
        rows, head = self.memory.rows(), prepared.snapshot.transcript_head
        body: bytes = prepared.body
        assert (head.seq, head.digest) == (
            self.memory.transcript.head.seq,
            self.memory.transcript.head.digest,
        )
        assert hashlib.sha256(body).digest() == prepared.snapshot.request_digest
        shown = json.loads(body)["messages"]
        placed = self.placed(rows, head.seq)
        assert shown == [message for _, message in placed]
        assert not expected.complaint(shown)
        assert not expected.markers(body) & self.gone()
        assert self.memory.run(self.memory.process().rebuild(prepared.snapshot.id)) == body
        tip = next((row.checkpoint for row in reversed(rows) if row.checkpoint), None)
        assert prepared.snapshot.checkpoint_id == (tip.id if tip else "")
        assert tip is None or tip.model == self.model
        made = Made(
            prepared.snapshot.id,
            head,
            rows[-1].version if rows else 0,
            body,
            placed,
            expected.skipped_ids(self.entries),
            (self.model, self.window),
        )
        if self.made:
            self._judge_prefix(self.made[-1], made, rows)
        self.made.append(made)

    def _judge_prefix(self, before: Made, now: Made, rows: Sequence[Row]) -> None:
        """Nothing in front of what was recorded changes (P1, P2)."""
        new = [row for row in rows if row.version > before.version]
        if any(row.checkpoint for row in new) or now.skipped != before.skipped:
            return
        stays = len(before.placed)
        if new:
            changed = min(one.seq for row in new if (one := row.transition))
            behind = (i for i, (seq, _) in enumerate(before.placed) if seq >= changed)
            stays = min(behind, default=stays)
        head = json.dumps([m for _, m in before.placed[:stays]])
        assert json.dumps([m for _, m in now.placed[:stays]]) == head
        if not new and before.profile == now.profile:
            assert now.body.startswith(before.body[: -len(b"]}")])

    def _judge_rows(self, *, is_overflow: bool) -> None:
        rows = self.memory.rows()
        journal, blobs = self.memory.journal.projections, self.memory.artifacts.bodies
        records.check_chains(rows, self.entries, journal)
        new = [row for row in rows[self._judged :] if row.turn != RIVAL]
        for version in sorted({row.version for row in new}):
            before = [row for row in rows if row.version < version]
            batch = [row for row in new if row.version == version]
            records.check_archived(batch, self.entries)
            records.check_newest_first(batch, before, self.entries, journal)
            for row in batch:
                if row.checkpoint is not None:
                    self._covered[row.checkpoint.id] = len(self.entries)
                    records.check_checkpoint(row.checkpoint, before, self.entries, journal, blobs)
        causes = [row.checkpoint.cause for row in new if row.checkpoint]
        reasons = {row.transition.reason for row in new if row.transition}
        if not is_overflow and len(new) == len(rows) - self._judged:
            assert not (reasons & set(records.ARCHIVED) and "window" in causes), "two breaks"
        of_round = [
            row for row in rows if row.checkpoint and row.turn == (self.turn_id, self.round)
        ]
        assert (
            len([r for r in of_round if r.checkpoint and "switch" not in r.checkpoint.cause]) <= 2
        )
        self._judged = len(rows)

    def _judge_summary_request(self, request: pb.PreparedRequest) -> None:
        *shown, asked = json.loads(request.body)["messages"]
        through = request.snapshot.transcript_head.seq
        assert shown == [message for _, message in self.placed(self.memory.rows(), through)]
        assert asked["role"] == "user"
        assert not expected.markers(request.body) & self.gone()

    def _summarized(self, before: Any, items: Sequence[Item], archive_tool: str) -> Any:
        """Summaries read effective history, and nothing that is out of it (P18)."""
        if not self._is_watching or not self.memory.may_wait():
            return self._extended(before, items, archive_tool)
        read = {m for item in items for block in item.blocks for m in expected.markers(block)}
        for item in items:
            for result in item.results:
                read |= expected.markers(b"".join(getattr(p, "raw", b"") for p in result.parts))
        skipped = expected.skipped_ids(self.entries)
        hidden = [entry.content for entry in self.entries if entry.id in skipped]
        assert not read & self.gone()
        assert not read & {m for one in hidden for m in expected.markers(b"".join(one.blocks))}
        return self._extended(before, items, archive_tool)

    def judge_the_past(self) -> None:
        """Every request that was ever made is made again, from what is stored (P33)."""
        process = self.memory.process()
        for one in self.made:
            assert self.memory.run(process.rebuild(one.snapshot_id)) == one.body
        known = self.memory.rows()
        self.memory.reread()
        rows = self.memory.rows()
        assert rows == known
        for row in rows:
            if row.checkpoint is not None and row.checkpoint.id in self._covered:
                then = self.entries[: self._covered[row.checkpoint.id]]
                journal = self.memory.journal.projections
                covered = records.covered_digest(row.checkpoint, rows, then, journal)
                assert covered == row.checkpoint.effective_digest

    def losses(self, version: int | None = None) -> Losses:
        if version is None:
            return self.memory.run(self.memory.records.newest(KEY))
        return self.memory.run(self.memory.records.at(KEY, version))

    def small(self, said: str) -> bytes:
        return text(self.marked(said))
