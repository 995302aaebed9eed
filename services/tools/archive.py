"""`read_archive`: the model reads a result that was archived to make room, or a text that was too
long to be shown.

What was archived is the call's own projection, which stays in the journal as it was; a text that
was too long is an artifact of the session. Reading either appends a page at the tail of history
and changes nothing in place.
"""

import asyncio
import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple, cast

import msgspec
from counterfoil.files.v1 import artifacts_pb2, artifacts_pb2_grpc
from counterfoil.journal.v1 import journal_pb2, journal_pb2_grpc
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1.reference_pb2 import ThreadRef

from foundation import artifacts, projections
from foundation.errors import Failure
from foundation.json import InvalidJson, parse
from foundation.outcomes import REDACTED, failure_text
from foundation.projections import Text
from services.tools.platform import PlatformTool, ToolCall, text_outcome

NAME = "read_archive"
PAGE_CHARS_MAX = 6_000
_REF_CHARS_MAX = 64
_SCHEMA = (
    b'{"type":"object","properties":{'
    b'"ref":{"type":"string","description":"The ref that stands where the result was, or the file '
    b'that a result names as its whole text."},'
    b'"offset":{"type":"integer","minimum":0,"description":"First character; 0 if left out."},'
    b'"limit":{"type":"integer","minimum":1,"maximum":6000,'
    b'"description":"Characters to return; 6000 if left out."}},'
    b'"required":["ref"],"additionalProperties":false}'
)
_DESCRIPTION = (
    "Returns a page of an earlier tool result of this conversation that was archived to save room, "
    "or that was too long to be shown. Where a result was archived, its place in the conversation "
    f"names the ref; one that was too long names a file in {artifacts.RESULTS_FOLDER}, which is "
    "the ref."
)


class Page(NamedTuple):
    """What is asked for, in code points."""

    ref: str
    offset: int
    limit: int


class BadInputError(Exception):
    """The input names no page; the text tells the model what to do."""


def read_archive(
    journal: journal_pb2_grpc.JournalServiceStub, files: artifacts_pb2_grpc.ArtifactServiceStub
) -> PlatformTool:
    """The tool, over a journal and the artifacts of sessions."""
    archive = _Archive(journal, files)

    async def run(call: ToolCall) -> journal_pb2.Outcome:
        try:
            page = page_of(call.input)
            return text_outcome(paged(page, await archive.text(call.thread, page.ref)))
        except BadInputError as error:
            return text_outcome(str(error), is_error=True)

    return PlatformTool(NAME, _DESCRIPTION, _SCHEMA, run, idempotent=True)


def page_of(input: bytes) -> Page:
    """The page that an input asks for. Raises BadInputError."""
    try:
        parsed: object = parse(input)
    except InvalidJson:
        parsed = None
    if not isinstance(parsed, dict):
        raise BadInputError('The input must be an object, for example {"ref": "op_…"}.')
    given = cast("dict[str, Any]", parsed)
    ref, offset, limit = (
        given.get("ref"),
        given.get("offset", 0),
        given.get("limit", PAGE_CHARS_MAX),
    )
    if not isinstance(ref, str) or not 0 < len(ref) <= _REF_CHARS_MAX:
        raise BadInputError(
            "`ref` must be a ref exactly as it stands in place of an archived result, for example "
            '"op_…".'
        )
    if not _is_integer(offset) or offset < 0:
        raise BadInputError(
            "`offset` must be an integer of 0 or more: the character to begin with."
        )
    if not _is_integer(limit) or not 1 <= limit <= PAGE_CHARS_MAX:
        raise BadInputError(f"`limit` must be an integer from 1 to {PAGE_CHARS_MAX}.")
    return Page(ref, offset, limit)


def paged(page: Page, text: str) -> str:
    """The page of a text, and where it stands. Raises BadInputError behind the end."""
    total = len(text)
    if page.offset > 0 and page.offset >= total:
        raise BadInputError(f"The result has {total} characters: `offset` must be below that.")
    end = min(page.offset + page.limit, total)
    more = f"The next page begins at offset {end}." if end < total else "This is its end."
    return f"[Characters {page.offset} to {end} of {total}. {more}]\n{text[page.offset : end]}"


class _Archive:
    """Whole texts by ref: an operation of the thread, or an artifact of its session."""

    def __init__(
        self,
        journal: journal_pb2_grpc.JournalServiceStub,
        files: artifacts_pb2_grpc.ArtifactServiceStub,
    ) -> None:
        self._journal = journal
        self._files = files

    async def text(self, thread: ThreadRef, ref: str) -> str:
        """What a ref stands for. Raises BadInputError, UNAVAILABLE, CORRUPT."""
        artifact_id = artifacts.named_by(ref)
        if artifact_id is None:
            return "\n".join(await self._result(thread, ref))
        if (text := await self._stored(thread, artifact_id)) is None:
            raise BadInputError(
                "This text is not kept any more, or this conversation has none with this ref."
            )
        return text

    async def _result(self, thread: ThreadRef, ref: str) -> Iterable[str]:
        """An operation's result in words, as it was before anything of it was archived; of a text
        that was too long to be shown, all of it."""
        request = journal_pb2.GetOperationsRequest(thread=thread, operation_ids=[ref])
        operations = (await self._journal.GetOperations(request)).operations
        if any(operation.is_redacted for operation in operations):
            raise BadInputError(failure_text(REDACTED))
        body = b"".join(operation.projection.body for operation in operations)
        if not body:
            raise BadInputError(
                "This conversation has no result with this ref. Use a ref exactly as it stands in "
                "place of an archived result, or the file that a result names."
            )
        words = list[str]()
        for part in projections.read(body).parts:
            if isinstance(part, Text):
                words.append(msgspec.json.decode(part.raw, type=str))
            elif part.media_type != artifacts.TEXT_TYPE:
                words.append(artifacts.line(part))
            elif (whole := await self._stored(thread, part.id, part.sha256)) is None:
                words.append(artifacts.GONE_TEXT)
            else:
                words = [whole]  # in place of its beginning and its end
        return words

    async def _stored(self, thread: ThreadRef, id: str, sha256: str = "") -> str | None:
        """The text of an artifact, with the SHA-256 (hex) that a result names, if one does; None
        when the session has none, or its bytes are gone."""
        request = artifacts_pb2.ReadArtifactRequest(
            workspace_id=thread.workspace_id, session_id=thread.session_id, artifact_id=id
        )
        try:
            read = await self._files.ReadArtifact(request)
        except Failure as failure:
            if failure.reason != reasons.ERROR_REASON_NOT_FOUND:
                raise
            return None
        if read.artifact.media_type != artifacts.TEXT_TYPE:
            raise BadInputError("This ref names an image: there is nothing to read in it.")
        digest = sha256 or read.artifact.sha256.hex()
        if await asyncio.to_thread(_digest, read.body) != digest:
            raise Failure(reasons.ERROR_REASON_CORRUPT, f"artifact {id} is not what was stored")
        return await asyncio.to_thread(read.body.decode)


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
