"""Finds what a redaction has to take out of a history. Pure.

Of an operation that is its result, and what was made of it by us: results of `read_archive` that
read it again, by its ref or as the text that it names, and the note of its late outcome. What the
model or the user wrote about it is other content, and is redacted by itself.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from counterfoil.transcript.v1 import transcript_pb2 as pb

from foundation.artifacts import named_by
from foundation.operations import note_entry
from services.context.planning import ARCHIVE_TOOL
from services.context.reducer import SPOKEN, block_head, input_digest
from services.context.transitions import INPUT_PART, Target


class Found(NamedTuple):
    """Something to redact."""

    target: Target
    base_digest: bytes
    """What it is known by before any transition."""
    operation_id: str


class _Call(msgspec.Struct):
    name: str = ""
    input: msgspec.Raw = msgspec.Raw()


class _Input(msgspec.Struct):
    ref: str = ""


_CALL = msgspec.json.Decoder(_Call)
_INPUT = msgspec.json.Decoder(_Input)


class Search:
    """Takes all entries of a history in order; `found` has what it looked for."""

    def __init__(
        self, operation_id: str = "", entry_seq: int = 0, artifact_ids: Iterable[str] = ()
    ) -> None:
        """`artifact_ids` are what the operation's result refers to."""
        self._operations = {operation_id} if operation_id else set[str]()
        self._notes = {note_entry(operation_id)} if operation_id else set[str]()
        self._entry_seq = entry_seq
        self._artifacts = set(artifact_ids)
        self._reads = set[int]()
        self.found: list[Found] = []
        self.is_other_kind = False
        """The named entry is no input."""

    def add(self, entry: pb.Entry) -> None:
        """The next entry."""
        if entry.kind == pb.TRANSCRIPT_ENTRY_KIND_ANSWER:
            self._reads = set(self._reads_of(entry.content.blocks))
        elif entry.kind == pb.TRANSCRIPT_ENTRY_KIND_RESULTS:
            self._results(entry)
        elif entry.kind in SPOKEN and (entry.seq == self._entry_seq or entry.id in self._notes):
            digest = input_digest(entry.content.blocks)
            self.found.append(Found(Target(entry.seq, INPUT_PART), digest, ""))
            return
        self.is_other_kind |= entry.seq == self._entry_seq

    def _results(self, entry: pb.Entry) -> None:
        for one in entry.content.results:
            if one.block_index in self._reads:
                self._operations.add(one.operation_id)
            if one.operation_id in self._operations:
                target = Target(entry.seq, one.block_index)
                self.found.append(Found(target, one.projection_digest, one.operation_id))

    def _reads_of(self, blocks: Iterable[bytes]) -> Iterable[int]:
        """Calls that read one of the results again, by block index."""
        for index, block in enumerate(blocks):
            try:
                if block_head(block).type != "tool_use":
                    continue
                call = _CALL.decode(block)
                if call.name == ARCHIVE_TOOL and self._is_of(_INPUT.decode(call.input).ref):
                    yield index
            except msgspec.DecodeError:
                continue

    def _is_of(self, ref: str) -> bool:
        return ref in self._operations or named_by(ref) in self._artifacts
