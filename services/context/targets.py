"""Finds what a redaction has to take out of a history. Pure.

Of an operation that is its result, and what was made of it by us: results of `read_archive` that
read it again, by its ref or as the text that it names, and the note of its late outcome. Of an
answer that is all of it, what it read with `read_archive` (afterwards nobody can tell what that
repeats), and the answers that hold calls of provider-run tools whose results it shows, or results
of those that it calls. What the model or the user wrote elsewhere is other content, and is redacted
by itself.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
from counterfoil.transcript.v1 import transcript_pb2 as pb

from foundation.artifacts import named_by
from foundation.operations import note_entry
from foundation.projections import REDACTED
from services.context import answers
from services.context.planning import ARCHIVE_TOOL
from services.context.reducer import SPOKEN, block_head, input_digest
from services.context.transitions import ANSWER_PART, INPUT_PART, Target, answer


@dataclass(slots=True)
class Found:
    """Something to redact."""

    target: Target
    base_digest: bytes
    """What it is known by before any transition."""
    operation_id: str = ""
    replacement: bytes = REDACTED
    """What will stand for it; empty where its content is erased already."""
    call_operation_ids: list[str] = field(default_factory=list[str])
    """Of an answer: the operations of its calls."""


class _Call(msgspec.Struct):
    name: str = ""
    input: msgspec.Raw = msgspec.Raw()


class _Input(msgspec.Struct):
    ref: str = ""


_CALL = msgspec.json.Decoder(_Call)
_INPUT = msgspec.json.Decoder(_Input)


@dataclass(slots=True, eq=False)
class _Answer:
    """An answer that may have to go."""

    found: Found
    shared_ids: set[bytes]
    reads: set[int]
    """Block indexes of calls of `read_archive`."""
    read: list[Found] = field(default_factory=list[Found])
    """Their results."""


class Search:
    """Takes all entries of a history in order; `found` then has what it looked for."""

    def __init__(
        self, operation_id: str = "", entry_seq: int = 0, artifact_ids: Iterable[str] = ()
    ) -> None:
        """`artifact_ids` are what the operation's result refers to."""
        self._operations = {operation_id} if operation_id else set[str]()
        self._notes = {note_entry(operation_id)} if operation_id else set[str]()
        self._entry_seq = entry_seq
        self._artifacts = set(artifact_ids)
        self._reads = set[int]()
        self._found: list[Found] = []
        self._answers: list[_Answer] = []
        self._last: _Answer | None = None
        self.is_other_kind = False
        """The named entry is neither an input nor an answer."""

    @property
    def found(self) -> list[Found]:
        """What was found; of answers the named one comes last, because its content says which the
        others are."""
        chosen = [one for one in self._answers if one.found.target.seq == self._entry_seq]
        rest = [one for one in self._answers if one not in chosen]
        ids = {id for one in chosen for id in one.shared_ids}
        linked: list[_Answer] = []
        while more := [one for one in rest if one.shared_ids & ids]:
            linked += more
            ids.update(*(one.shared_ids for one in more))
            rest = [one for one in rest if one not in more]
        linked.sort(key=lambda one: one.found.target.seq)
        going = (*linked, *chosen)
        read = [found for one in going for found in one.read]
        return [*self._found, *read, *(one.found for one in going)]

    def add(self, entry: pb.Entry) -> None:
        """The next entry."""
        if entry.kind == pb.TRANSCRIPT_ENTRY_KIND_ANSWER:
            self._answer(entry)
            return
        if entry.kind == pb.TRANSCRIPT_ENTRY_KIND_RESULTS:
            self._results(entry)
        elif entry.kind in SPOKEN and (entry.seq == self._entry_seq or entry.id in self._notes):
            digest = input_digest(entry.content.blocks)
            self._found.append(Found(Target(entry.seq, INPUT_PART), digest))
            return
        self.is_other_kind |= entry.seq == self._entry_seq

    def _answer(self, entry: pb.Entry) -> None:
        blocks = entry.content.blocks
        refs = dict(_refs_of(blocks))
        self._reads = {index for index, ref in refs.items() if self._is_of(ref)}
        shared, self._last = answers.shared_ids(blocks), None
        if entry.seq != self._entry_seq and not shared:
            return
        found = Found(Target(entry.seq, ANSWER_PART), input_digest(blocks), replacement=b"")
        if entry.HasField("content"):
            found.replacement = answer(answers.stand_in(blocks))
            found.call_operation_ids += [one.operation_id for one in entry.content.mappings]
        self._last = _Answer(found, shared, set(refs))
        self._answers.append(self._last)

    def _results(self, entry: pb.Entry) -> None:
        for one in entry.content.results:
            if one.block_index in self._reads:
                self._operations.add(one.operation_id)
            found = Found(
                Target(entry.seq, one.block_index), one.projection_digest, one.operation_id
            )
            if one.operation_id in self._operations:
                self._found.append(found)
            if self._last is not None:
                self._of_call(self._last, found)

    def _of_call(self, of: _Answer, result: Found) -> None:
        if result.target.part in of.reads:
            of.read.append(result)
        if result.operation_id not in of.found.call_operation_ids:
            of.found.call_operation_ids.append(result.operation_id)

    def _is_of(self, ref: str) -> bool:
        return ref in self._operations or named_by(ref) in self._artifacts


def _refs_of(blocks: Iterable[bytes]) -> Iterable[tuple[int, str]]:
    """Calls that read something again, by block index, and what they name."""
    for index, block in enumerate(blocks):
        try:
            if block_head(block).type != "tool_use":
                continue
            call = _CALL.decode(block)
            if call.name == ARCHIVE_TOOL:
                yield index, _INPUT.decode(call.input).ref
        except msgspec.DecodeError:
            continue
