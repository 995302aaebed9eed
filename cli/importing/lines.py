"""The rows of an export, found by their types, read one by one."""

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from cli.importing.codec import Translated, is_older, normalize
from cli.importing.exported import BEGIN, Exported, Placed, bad_line, lines_of
from foundation.errors import Failure
from foundation.exports import LINE_BYTES_MAX, Line, TablePart
from foundation.exports.lines import damaged, kind_of
from foundation.exports.tables import Row
from services.context.export_parts import ALL as CONTEXT
from services.files.export_parts import ARTIFACT
from services.journal.export_parts import PARTS as JOURNAL
from services.ledger.export_parts import PARTS as LEDGER
from services.transcript.export_parts import PARTS as TRANSCRIPT

_KINDS = {
    "ledger": {BEGIN, *LEDGER},
    "transcript": {*TRANSCRIPT},
    "journal": {*JOURNAL},
    "context": {*CONTEXT},
    "files": {ARTIFACT},
}


class Place(NamedTuple):
    """Where a line is, and its type, which names its table."""

    kind: str
    number: int
    offset: int


class Found(NamedTuple):
    """A line that was read: where it is, and its row, open."""

    place: Place
    row: Row


def refuse(place: Place, column: str, message: str) -> ValueError:
    """Says of a line what does not hold."""
    where = f"{column}: {message}" if column else message
    return ValueError(f"line {place.number}, {place.kind}: {where}")


class Lines:
    """All lines of an export by their types. Raises ValueError for a line of none."""

    def __init__(self, file: BinaryIO, exported: Exported) -> None:
        self._file = file
        self._workspace_id = exported.thread.workspace_id
        self._places: dict[str, list[Place]] = {}
        self._order: dict[str, list[Place]] = {}
        self._older: list[Place] = []
        for service, kinds in _KINDS.items():
            self._order[service] = []
            for one in lines_of(file, exported.sections[service]):
                self._add(service, kinds, one)

    def _add(self, service: str, kinds: set[str], one: Placed) -> None:
        try:
            kind, older = kind_of(one.body), is_older(one.body)
        except Failure as failure:
            raise bad_line(one.number, failure) from None
        if kind not in kinds:
            message = f"no line of the {service} has the type {kind!r}"
            raise bad_line(one.number, damaged(message))
        place = Place(kind, one.number, one.offset)
        self._order[service].append(place)
        self._places.setdefault(kind, []).append(place)
        if older:
            self._older.append(place)

    def of(self, service: str) -> Iterator[Line]:
        """What an authority is sent."""
        for place in self._order[service]:
            yield self.line(place)
        if service == "files":
            yield from self.older_artifacts()

    def places(self, kind: str) -> list[Place]:
        """Where the lines of a type are."""
        return self._places.get(kind, [])

    def rows(self, part: TablePart) -> Iterator[Found]:
        """The rows of a table. Raises ValueError for a line that no export has, or has twice."""
        seen = set[tuple[object, ...]]()
        for place in self.places(part.kind):
            row = self.row(part, place)
            named = tuple(row[name] for name in part.order)
            if named in seen:
                raise refuse(place, ", ".join(part.order), "a line before has the same")
            seen.add(named)
            yield Found(place, row)

    def row(self, part: TablePart, place: Place) -> Row:
        """The row of one line. Raises ValueError as `rows` does."""
        try:
            return part.row(self.line(place))
        except Failure as failure:
            raise refuse(place, failure.path, failure.message) from None

    def line(self, place: Place) -> Line:
        """One line, as this version writes it. Raises ValueError."""
        return Line(place.number, place.kind, self._translated(place).body)

    def older_artifacts(self) -> Iterator[Line]:
        """The artifacts that outcomes of other makes bring; the number is the outcome's."""
        for place in self._older:
            for one in self._translated(place).artifacts:
                yield Line(place.number, ARTIFACT, one)

    def _translated(self, place: Place) -> Translated:
        self._file.seek(place.offset)
        body = self._file.readline(LINE_BYTES_MAX).removesuffix(b"\n")
        try:
            return normalize(body, self._workspace_id)
        except Failure as failure:
            raise refuse(place, failure.path, failure.message) from None
