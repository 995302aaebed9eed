"""Histories as entries, and strategies for them."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from counterfoil.journal.v1.journal_pb2 import Projection
from counterfoil.transcript.v1 import transcript_pb2 as pb
from hypothesis import strategies as st

from foundation import digests
from services.context.materializer import Blobs, materialize
from services.context.reducer import Item

INPUT = pb.TRANSCRIPT_ENTRY_KIND_INPUT
ANSWER = pb.TRANSCRIPT_ENTRY_KIND_ANSWER
RESULTS = pb.TRANSCRIPT_ENTRY_KIND_RESULTS
WITHHELD = pb.TRANSCRIPT_ENTRY_KIND_WITHHELD
NOTE = pb.TRANSCRIPT_ENTRY_KIND_NOTE
CONTINUE = pb.TRANSCRIPT_ENTRY_KIND_CONTINUE
ABANDONED = pb.TRANSCRIPT_ENTRY_KIND_ABANDONED

Kind = pb.TranscriptEntryKind.ValueType


def text(value: str) -> bytes:
    return b'{"type":"text","text":%b}' % json.dumps(value).encode()


def use(id: str, input: str = '{"n": 1.10}') -> bytes:
    return b'{"type":"tool_use","id":%b,"name":"t","input":%b}' % (
        json.dumps(id).encode(),
        input.encode(),
    )


def projection(*texts: str, is_error: bool = False) -> Projection:
    parts = [{"kind": "text", "text": one} for one in texts]
    value: dict[str, Any] = {"kind": "content", "parts": parts, "v": 1}
    if is_error:
        value = {"is_error": True, **value}
    return projection_of(json.dumps(value, separators=(",", ":")).encode())


def projection_of(body: bytes) -> Projection:
    return Projection(body=body, digest=digests.digest("counterfoil.projection.v1", body))


def written(items: Iterable[Item], blobs: Blobs | None = None) -> list[bytes]:
    """The messages of a history."""
    return [message.body for _, message in materialize(items, blobs or {}).messages]


@dataclass
class History:
    """Entries that grow, with the journal's projections."""

    entries: list[pb.Entry] = field(default_factory=list)
    projections: dict[str, Projection] = field(default_factory=dict)

    def add(self, kind: Kind, **content: Any) -> pb.Entry:
        seq = len(self.entries) + 1
        entry = pb.Entry(id=f"tent_{seq}", seq=seq, kind=kind, content=pb.EntryContent(**content))
        entry.digest = digests.digest("test", str(seq).encode(), entry.content.SerializeToString())
        self.entries.append(entry)
        return entry

    def ask(self, *blocks: bytes) -> "History":
        self.add(INPUT, blocks=blocks or [text("hi")])
        return self

    def note(self, *blocks: bytes) -> "History":
        """The host's note, before an input."""
        self.add(NOTE, blocks=blocks or [text("it finished after all")])
        return self

    def go_on(self) -> "History":
        """The host's word behind a cut-off answer."""
        self.add(CONTINUE, blocks=[text("continue")])
        return self

    def answer(self, *blocks: bytes) -> "History":
        self.add(ANSWER, blocks=blocks)
        return self

    def results(self, *given: Projection, trailing: tuple[bytes, ...] = ()) -> "History":
        """One projection per tool_use of the last answer, in order."""
        blocks = self.entries[-1].content.blocks
        indexes = [i for i, block in enumerate(blocks) if b'"type":"tool_use"' in block]
        references: list[pb.ResultReference] = []
        for index, one in zip(indexes, given, strict=True):
            id = f"op_{len(self.entries)}_{index}"
            self.projections[id] = one
            references.append(
                pb.ResultReference(operation_id=id, block_index=index, projection_digest=one.digest)
            )
        self.add(RESULTS, results=references, trailing_blocks=trailing)
        return self

    def skip(self, kind: Kind, *ids: str) -> "History":
        self.add(kind, skipped_entry_ids=ids)
        return self


_TEXTS = st.text(max_size=8)
_BLOCKS = st.one_of(
    _TEXTS.map(text),
    st.sampled_from(
        [
            b'{"type":"thinking","thinking":"","signature":"x"}',
            b'{ "type" : "new_kind", "z":1e400, "a":[1.10,"\\u0000"] }',
            b'{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}',
        ]
    ),
)
_RESULTS = st.builds(
    lambda texts, is_error: projection(*texts, is_error=is_error),
    st.lists(_TEXTS, max_size=2),
    st.booleans(),
)


@st.composite
def histories(draw: st.DrawFn, turns: int = 4) -> History:
    """Valid histories: inputs, answers with and without calls, their results, skipped turns."""
    history = History()
    for _ in range(draw(st.integers(1, turns))):
        for _ in range(draw(st.integers(0, 3)) // 2):
            history.note(*draw(st.lists(_BLOCKS, min_size=1, max_size=2)))
        begin = len(history.entries)
        history.ask(*draw(st.lists(_BLOCKS, min_size=1, max_size=2)))
        for _ in range(draw(st.integers(0, 2))):
            calls = draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3))
            history.answer(*draw(st.lists(_BLOCKS, max_size=2)), *(use(id) for id in calls))
            history.results(*(draw(_RESULTS) for _ in calls))
        history.answer(*draw(st.lists(_BLOCKS, max_size=2)))
        if draw(st.integers(0, 5)) == 0:
            ids = [entry.id for entry in history.entries[begin:]]
            history.skip(draw(st.sampled_from([ABANDONED, WITHHELD])), *ids)
    return history
