"""The model reads archived results page by page, of its own thread only, and is taught how."""

import json
from typing import Any, cast

import pytest
from counterfoil.journal.v1 import journal_pb2 as pb
from counterfoil.types.v1.reference_pb2 import ThreadRef
from hypothesis import given
from hypothesis import strategies as st

from foundation import canonical
from services.tools.archive import BadInputError, Page, page_of, paged, read_archive
from services.tools.platform import ToolCall

THREAD = ThreadRef(workspace_id="wrkspc_1", session_id="sesn_1", thread_id="sthr_1")


class Journal:
    """Two operations of one thread: one with a result, one without."""

    def __init__(self, *parts: Any) -> None:
        body = canonical.encode({"kind": "content", "parts": list(parts), "v": 1})
        self.redacted = set[str]()
        self.found = {"op_1": pb.Projection(body=body), "op_2": pb.Projection()}

    async def GetOperations(self, request: pb.GetOperationsRequest) -> pb.GetOperationsResponse:
        own = request.thread == THREAD
        return pb.GetOperationsResponse(
            operations=[
                pb.Operation(id=id, projection=self.found[id], is_redacted=id in self.redacted)
                for id in request.operation_ids
                if own and id in self.found
            ]
        )


async def read(journal: Journal, thread: ThreadRef = THREAD, **input: Any) -> tuple[str, bool]:
    tool = read_archive(cast(Any, journal))
    outcome = await tool.run(ToolCall(json.dumps(input).encode(), "op_9", thread))
    (block,) = json.loads(outcome.content)
    return block["text"], outcome.is_error


async def test_a_redacted_result_is_not_read_but_said_to_be_redacted() -> None:
    journal = Journal({"kind": "text", "text": "gone"})
    journal.redacted.add("op_1")
    said, is_error = await read(journal, ref="op_1")
    assert is_error
    assert "redacted" in said


async def test_pages_join_to_the_result_as_it_was_shown() -> None:
    artifact = {"kind": "artifact", "artifact_id": "art_1", "media_type": "text/plain"}
    journal = Journal(
        {"kind": "text", "text": "é" * 7_000}, {**artifact, "size": 9, "sha256": "00"}
    )
    first, _ = await read(journal, ref="op_1")
    head, _, page = first.partition("\n")
    assert head.startswith("[Characters 0 to 6000 of 7")
    assert head.endswith("The next page begins at offset 6000.]")
    rest, is_error = await read(journal, ref="op_1", offset=6_000)
    head, _, end = rest.partition("\n")
    assert "This is its end." in head
    assert page + end == "é" * 7_000 + (
        "\n[The whole text, 9 bytes, is kept in .counterfoil-tool-results/art_1.txt]"
    )
    assert not is_error


@given(st.text(), st.integers(1, 50))
def test_any_text_is_read_whole(text: str, limit: int) -> None:
    said, offset = "", 0
    while offset < len(text) or not said:
        page = paged(Page("op_1", offset, limit), text).partition("\n")[2]
        said += page
        offset += limit
        if not text:
            break
    assert said == text


@pytest.mark.parametrize(
    ("thread", "ref"),
    [
        (THREAD, "op_unknown"),
        (THREAD, "op_2"),
        (ThreadRef(workspace_id="wrkspc_1", session_id="sesn_2", thread_id="sthr_1"), "op_1"),
        (ThreadRef(workspace_id="wrkspc_2", session_id="sesn_1", thread_id="sthr_1"), "op_1"),
    ],
)
async def test_a_foreign_or_unknown_ref_is_explained(thread: ThreadRef, ref: str) -> None:
    said, is_error = await read(Journal({"kind": "text", "text": "secret"}), thread, ref=ref)
    assert is_error
    assert "no result with this ref" in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("input", "names"),
    [
        (b"", "an object"),
        (b"[]", "an object"),
        (b"{}", "`ref`"),
        (b'{"ref":1}', "`ref`"),
        (b'{"ref":""}', "`ref`"),
        (b'{"ref":"%s"}' % (b"x" * 65), "`ref`"),
        (b'{"ref":"op_1","offset":-1}', "`offset`"),
        (b'{"ref":"op_1","offset":1.5}', "`offset`"),
        (b'{"ref":"op_1","offset":true}', "`offset`"),
        (b'{"ref":"op_1","limit":0}', "`limit`"),
        (b'{"ref":"op_1","limit":6001}', "`limit`"),
    ],
)
def test_a_bad_input_is_told_what_is_wrong(input: bytes, names: str) -> None:
    with pytest.raises(BadInputError, match=names):
        page_of(input)


async def test_behind_the_end_the_length_is_told() -> None:
    said, is_error = await read(Journal({"kind": "text", "text": "abc"}), ref="op_1", offset=3)
    assert is_error
    assert "has 3 characters" in said
