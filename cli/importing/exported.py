"""An exported file: checked as a whole before anything of it is used."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import msgspec
from counterfoil.types.v1.export_pb2 import ExportCut
from counterfoil.types.v1.reference_pb2 import ThreadRef

from foundation import json
from foundation.errors import Failure
from foundation.exports import LINE_BYTES_MAX
from foundation.exports.lines import VERSION, damaged, kind_of, members_of

BEGIN = "export.begin"
_END = "export.end"

SERVICES = ("ledger", "transcript", "journal", "context", "files")
"""In the order of their lines."""


@dataclass(frozen=True)
class Section:
    """The lines of one authority, without the one that ends them."""

    offset: int
    first_line: int
    lines: int


class Placed(NamedTuple):
    """A line without its end: its number and its place in the file."""

    number: int
    offset: int
    body: bytes


@dataclass(frozen=True)
class Exported:
    """What a file holds."""

    thread: ThreadRef
    cut: ExportCut
    sections: dict[str, Section]


class _Begin(msgspec.Struct):
    """The members of the first line that an import needs."""

    workspace_id: str
    session_id: str
    cut: msgspec.Raw


class _End(msgspec.Struct):
    """A line that ends lines."""

    lines: int
    sha256: str


_BEGIN_LINE = msgspec.json.Decoder(_Begin)
_END_LINE = msgspec.json.Decoder(_End)


def bad_line(number: int, failure: Failure) -> ValueError:
    """A failure with the number of the line in the file."""
    return ValueError(f"line {number}: {failure.text}")


def read(file: BinaryIO) -> Exported:
    """Read a file from its beginning. Raises ValueError with the line's number when it is not a
    whole export, or was changed."""
    number, begin = 1, file.readline(LINE_BYTES_MAX)
    try:
        thread, cut = _begin(begin)
        file.seek(0)
        return Exported(thread, cut, _sections(file))
    except Failure as failure:
        raise bad_line(int(failure.metadata.get("line", number)), failure) from None


def lines_of(file: BinaryIO, section: Section) -> Iterator[Placed]:
    """The lines of a section. The file may be read elsewhere meanwhile."""
    offset = section.offset
    for number in range(section.first_line, section.first_line + section.lines):
        file.seek(offset)
        body = file.readline(LINE_BYTES_MAX)
        yield Placed(number, offset, body.removesuffix(b"\n"))
        offset += len(body)


def _begin(line: bytes) -> tuple[ThreadRef, ExportCut]:
    if kind_of(line) != BEGIN:
        raise damaged(f"an export begins with a line of the type {BEGIN!r}")
    version = members_of(line).get("v")
    if version is None or bytes(version) != b"%d" % VERSION:
        raise damaged(f"the export has another version than {VERSION}, which this program reads")
    try:
        found = _BEGIN_LINE.decode(line)
        cut = json.decode(ExportCut, bytes(found.cut))
    except (msgspec.DecodeError, json.InvalidJson) as error:
        raise damaged(f"what is exported cannot be read: {error}") from None
    thread = ThreadRef(
        workspace_id=found.workspace_id, session_id=found.session_id, thread_id=cut.thread_id
    )
    return thread, cut


def _sections(file: BinaryIO) -> dict[str, Section]:
    """Every authority's lines, each count and digest checked."""
    found, whole, number = dict[str, Section](), hashlib.sha256(), 0
    for service in SERVICES:
        offset, first, seal = file.tell(), number + 1, hashlib.sha256()
        while True:
            line, number = _line(file, number + 1)
            whole.update(line)
            if _kind(line, number) == f"{service}.end":
                break
            seal.update(line)
        count = number - first
        _check_end(line, number, count, seal.hexdigest())
        found[service] = Section(offset, first, count)
    line, number = _line(file, number + 1)
    if _kind(line, number) != _END:
        raise _damaged(number, f"expected the line {_END!r} that ends the export")
    _check_end(line, number, number - 1, whole.hexdigest())
    if file.read(1):
        raise _damaged(number + 1, "something stands behind the end of the export")
    return found


def _line(file: BinaryIO, number: int) -> tuple[bytes, int]:
    line = file.readline(LINE_BYTES_MAX)
    if not line:
        raise _damaged(number, "the export is cut off: lines are missing")
    if not line.endswith(b"\n"):
        raise _damaged(number, "the line is cut off, or longer than a line may be")
    return line, number


def _kind(line: bytes, number: int) -> str:
    try:
        return kind_of(line)
    except Failure as failure:
        raise _damaged(number, failure.text) from None


def _check_end(line: bytes, number: int, count: int, digest: str) -> None:
    try:
        end = _END_LINE.decode(line)
    except msgspec.DecodeError as error:
        raise _damaged(number, f"the line cannot be read: {error}") from None
    if end.lines != count:
        raise _damaged(number, f"{end.lines} lines were exported, but {count} are here")
    if end.sha256 != digest:
        raise _damaged(number, "the lines before this one are not those that were exported")


def _damaged(number: int, message: str) -> Failure:
    failure = damaged(message)
    failure.metadata["line"] = str(number)
    return failure
