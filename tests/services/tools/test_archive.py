"""The model reads archived results page by page, of its own thread only, and is taught how."""

import hashlib
import json
from typing import Any, cast

import pytest
from counterfoil.files.v1 import artifacts_pb2
from counterfoil.journal.v1 import journal_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1.reference_pb2 import ThreadRef
from hypothesis import given
from hypothesis import strategies as st

from foundation import artifacts, canonical
from foundation.errors import Failure
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


class Files:
    """Artifacts of one session, as the files authority gives them out."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}
        self.media_type = artifacts.TEXT_TYPE

    async def ReadArtifact(
        self, request: artifacts_pb2.ReadArtifactRequest
    ) -> artifacts_pb2.ReadArtifactResponse:
        own = (request.workspace_id, request.session_id) == (THREAD.workspace_id, THREAD.session_id)
        if not own or request.artifact_id not in self.bodies:
            raise Failure(reasons.ERROR_REASON_NOT_FOUND, "no such artifact")
        body = self.bodies[request.artifact_id]
        digest = hashlib.sha256(body).digest()
        artifact = artifacts_pb2.Artifact(media_type=self.media_type, sha256=digest)
        return artifacts_pb2.ReadArtifactResponse(artifact=artifact, body=body)


WHOLE = "é" * 70_000 + "x" * 50_000
LONG = "art_" + "0" * 26
PATH = f".counterfoil-tool-results/{LONG}.txt"


def stored_text(whole: str = WHOLE) -> dict[str, Any]:
    """The part of a text that was too long to be shown."""
    sha256, size = hashlib.sha256(whole.encode()).hexdigest(), len(whole.encode())
    named = {"kind": "artifact", "artifact_id": LONG, "media_type": artifacts.TEXT_TYPE}
    return {**named, "size": size, "sha256": sha256}


def long_result(whole: str = WHOLE) -> tuple[Journal, Files]:
    """A result of which the model was shown the beginning and the end."""
    shown = {"kind": "text", "text": f"{WHOLE[:1200]}\n\n[left out]\n\n{WHOLE[-800:]}"}
    more = {"kind": "text", "text": "[left out of this result: 2 images]"}
    files = Files()
    files.bodies[LONG] = whole.encode()
    return Journal(shown, stored_text(), more), files


async def read(
    journal: Journal, thread: ThreadRef = THREAD, files: Files | None = None, **input: Any
) -> tuple[str, bool]:
    tool = read_archive(cast(Any, journal), cast(Any, files or Files()))
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
    artifact = {"kind": "artifact", "artifact_id": "art_1", "media_type": "image/png"}
    journal = Journal(
        {"kind": "text", "text": "é" * 7_000},
        {**artifact, "size": 9, "sha256": "00", "w": 2, "h": 3},
    )
    first, _ = await read(journal, ref="op_1")
    head, _, page = first.partition("\n")
    assert head.startswith("[Characters 0 to 6000 of 7")
    assert head.endswith("The next page begins at offset 6000.]")
    rest, is_error = await read(journal, ref="op_1", offset=6_000)
    head, _, end = rest.partition("\n")
    assert "This is its end." in head
    assert page + end == "é" * 7_000 + ("\n[Image art_1: image/png, 2 x 3 pixels, 9 bytes]")
    assert not is_error


@pytest.mark.parametrize("ref", ["op_1", LONG, PATH])
async def test_a_text_that_was_too_long_to_be_shown_is_read_whole(ref: str) -> None:
    journal, files = long_result()
    said, offset = "", 0
    while "The next page" in (page := await read(journal, files=files, ref=ref, offset=offset))[0]:
        assert len(page[0].partition("\n")[2]) == 6_000
        said += page[0].partition("\n")[2]
        offset += 6_000
    said += page[0].partition("\n")[2]
    behind = "\n[left out of this result: 2 images]" if ref == "op_1" else ""
    assert said == WHOLE + behind
    assert not page[1]


async def test_a_text_that_is_not_kept_any_more_is_said_to_be_gone() -> None:
    journal, files = long_result()
    files.bodies.clear()
    said, is_error = await read(journal, files=files, ref="op_1")
    assert "[left out]" in said
    assert artifacts.GONE_TEXT in said
    assert not is_error
    said, is_error = await read(journal, files=files, ref=PATH)
    assert "not kept any more" in said
    assert is_error


async def test_a_text_that_is_not_the_one_that_was_shown_is_not_read() -> None:
    journal, files = long_result("another text")
    with pytest.raises(Failure, match="not what was stored"):
        await read(journal, files=files, ref="op_1")


async def test_an_image_is_no_text() -> None:
    journal, files = long_result()
    files.media_type = "image/png"
    said, is_error = await read(journal, files=files, ref=LONG)
    assert is_error
    assert "image" in said


@pytest.mark.parametrize("field", ["workspace_id", "session_id"])
async def test_a_text_of_another_session_is_as_if_it_were_not_there(field: str) -> None:
    journal, files = long_result()
    foreign = ThreadRef()
    foreign.CopyFrom(THREAD)
    setattr(foreign, field, "another")
    for ref in (LONG, PATH):
        said, is_error = await read(journal, foreign, files, ref=ref)
        assert is_error
        assert "has none with this ref" in said


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
