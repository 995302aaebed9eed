"""`read_archive`: the model reads a result that was archived to make room.

What was archived is the call's own projection, which stays in the journal as it was: reading it
appends a page at the tail of history and changes nothing in place.
"""

from typing import Any, NamedTuple, cast

from counterfoil.journal.v1 import journal_pb2, journal_pb2_grpc

from foundation import artifacts, projections
from foundation.json import InvalidJson, parse
from foundation.outcomes import REDACTED, failure_text
from services.tools.platform import PlatformTool, ToolCall, text_outcome

NAME = "read_archive"
PAGE_CHARS_MAX = 6_000
_REF_CHARS_MAX = 64
_SCHEMA = (
    b'{"type":"object","properties":{'
    b'"ref":{"type":"string","description":"The ref that stands where the result was."},'
    b'"offset":{"type":"integer","minimum":0,"description":"First character; 0 if left out."},'
    b'"limit":{"type":"integer","minimum":1,"maximum":6000,'
    b'"description":"Characters to return; 6000 if left out."}},'
    b'"required":["ref"],"additionalProperties":false}'
)
_DESCRIPTION = (
    "Returns a page of an earlier tool result of this conversation that was archived to save room. "
    "Where a result was archived, its place in the conversation names the ref."
)


class Page(NamedTuple):
    """What is asked for, in code points."""

    ref: str
    offset: int
    limit: int


class BadInputError(Exception):
    """The input names no page; the text tells the model what to do."""


def read_archive(journal: journal_pb2_grpc.JournalServiceStub) -> PlatformTool:
    """The tool, over a journal."""

    async def run(call: ToolCall) -> journal_pb2.Outcome:
        try:
            page = page_of(call.input)
            request = journal_pb2.GetOperationsRequest(thread=call.thread, operation_ids=[page.ref])
            return text_outcome(
                paged(page, _text((await journal.GetOperations(request)).operations))
            )
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


def _text(operations: Any) -> str:
    """An operation's result in words, as it was shown before anything of it was archived."""
    if any(operation.is_redacted for operation in operations):
        raise BadInputError(failure_text(REDACTED))
    body = b"".join(operation.projection.body for operation in operations)
    if not body:
        raise BadInputError(
            "This conversation has no result with this ref. Use a ref exactly as it stands in "
            "place of an archived result."
        )
    return "\n".join(artifacts.words(projections.read(body)))


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
