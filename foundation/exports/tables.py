"""Tables as lines, by their columns: one row, one line, and back."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from foundation.errors import Failure
from foundation.exports.forms import BOOL, INT, TEXT, TIME, BytesForm, Form, Members
from foundation.exports.lines import VERSION, Line, Pair, at_line, line, members_of, refused
from foundation.storage import Connection, Record, SealRing

if TYPE_CHECKING:
    import sqlalchemy as sa

Key = tuple[str, ...]
"""Workspace and session, and the thread where the tables have it in their keys."""

Row = dict[str, Any]
Identity = Callable[[Key, Mapping[str, Any]], tuple[str | int, ...]]

_KEYS = ("workspace_id", "session_id", "thread_id")
_BATCH_ROWS = 200
_BATCH_BYTES = 1 << 22


class Reader(Protocol):
    """Reads one statement: a database, or a connection inside a snapshot."""

    async def fetch(self, sql: str, /, *args: object) -> list[Record]:
        """All rows."""
        ...


@dataclass(frozen=True)
class Sealed:
    """A column that is sealed at rest and open in a line."""

    identity: Identity
    form: BytesForm


Declared = Callable[[], "sa.Table"]


def declared(module: str, name: str) -> Declared:
    """The table of this name in a schema module. That is imported, with all of SQLAlchemy, when the
    first line is made: a start does not wait for it."""

    def table() -> "sa.Table":
        found: sa.Table = import_module(module).metadata.tables[name]
        return found

    return table


@dataclass(frozen=True)
class TablePart:
    """The rows of one table that belong to one session.

    `forms` are the forms of columns that hold bytes; `left_out` is derived from the rest, or has
    no meaning elsewhere, with the value that it gets. `condition` bounds the rows with the
    parameters `{0}`, `{1}`, …; `instead` reads an expression in place of a column.
    """

    kind: str
    declared: "Declared"
    key_columns: int = 3
    forms: Mapping[str, BytesForm | Sealed] = field(default_factory=dict[str, BytesForm | Sealed])
    left_out: Mapping[str, object] = field(default_factory=dict[str, object])
    condition: str = ""
    instead: Mapping[str, str] = field(default_factory=dict[str, str])
    page_rows: int = 200

    @cached_property
    def table(self) -> "sa.Table":
        """The table as its authority declares it."""
        return self.declared()

    @cached_property
    def columns(self) -> dict[str, Form | Sealed]:
        """The columns that stand in a line, in the order of the table."""
        names = [str(c.name) for c in self.table.columns if c.name not in self._own]
        return {
            name: self.forms.get(name) or _form_of(self.table.columns[name])
            for name in names
            if name not in self.left_out
        }

    @property
    def _name(self) -> str:
        return self.table.fullname

    @property
    def _own(self) -> tuple[str, ...]:
        return _KEYS[: self.key_columns]

    @cached_property
    def order(self) -> tuple[str, ...]:
        """What rows of one session are ordered by."""
        names = [str(c.name) for c in self.table.primary_key.columns]
        return tuple(name for name in names if name not in self._own)

    async def pages(
        self, reader: Reader, ring: SealRing, key: Key, parameters: Sequence[object] = ()
    ) -> AsyncIterator[list[Row]]:
        """Rows in order, opened."""
        after: tuple[object, ...] = ()
        while True:
            sql, limit = self._select(len(parameters), bool(after)), self.page_rows
            found = await reader.fetch(sql, *key, *parameters, *after, limit)
            yield [self._opened(ring, key, dict(row)) for row in found]
            if len(found) < limit or not self.order:
                return
            after = tuple(found[-1][name] for name in self.order)

    def line(self, row: Mapping[str, Any]) -> bytes:
        """The line of an opened row."""
        pairs: list[Pair] = []
        for name, form in self.columns.items():
            value = row[name]
            if value is None:
                pairs.append((name, b"null"))
            else:
                shown = form.form if isinstance(form, Sealed) else form
                pairs += shown.write(name, value)
        return line(self.kind, pairs)

    def row(self, one: Line) -> Row:
        """The opened row of a line; refuses every line that `line` would not write."""
        members = Members(members_of(one.body))
        try:
            members.take("type")
            if members.take("v") != b"%d" % VERSION:
                raise refused(f"must be {VERSION}", "v")
            row = {name: self._read(name, form, members) for name, form in self.columns.items()}
            members.end()
            if self.line(row) != one.body:
                raise refused("the line is not spelled as it would be written")
        except Failure as failure:
            raise at_line(failure, one.number) from None
        return row

    def sealed(self, ring: SealRing, key: Key, row: Mapping[str, Any]) -> tuple[object, ...]:
        """The parameters of `insert` for an opened row."""
        values = self.at_rest(ring, key, row).values()
        return *key[: self.key_columns], *values, *self.left_out.values()

    def at_rest(self, ring: SealRing, key: Key, row: Mapping[str, Any]) -> Row:
        """An opened row as it is stored."""
        stored: Row = {}
        for name, form in self.columns.items():
            value = row[name]
            if isinstance(form, Sealed) and value is not None:
                value = ring.seal(value, *form.identity(key, row))
            stored[name] = value
        return stored

    @cached_property
    def insert(self) -> str:
        """The statement that inserts a row."""
        names = [*self._own, *self.columns, *self.left_out]
        marks = ", ".join(f"${n}" for n in range(1, len(names) + 1))
        return f"INSERT INTO {self._name} ({', '.join(names)}) VALUES ({marks})"  # noqa: S608 (names)

    @cached_property
    def exists(self) -> str:
        """The statement that says whether a session has rows."""
        return f"SELECT EXISTS (SELECT FROM {self._name} WHERE {self._where})"  # noqa: S608 (names)

    @property
    def _where(self) -> str:
        return " AND ".join(f"{name} = ${n}" for n, name in enumerate(self._own, 1))

    def _select(self, parameters: int, is_later: bool) -> str:
        first = self.key_columns + 1
        where, next_ = self._where, first + parameters
        given = [f"${n}" for n in range(first, next_)]
        chosen = [
            f"{self.instead[name].format(*given)} AS {name}" if name in self.instead else name
            for name in self.columns
        ]
        if self.condition:
            where += f" AND ({self.condition.format(*given)})"
        if is_later:
            marks = [f"${n}" for n in range(next_, next_ + len(self.order))]
            where += f" AND ({', '.join(self.order)}) > ({', '.join(marks)})"
            next_ += len(self.order)
        order = f" ORDER BY {', '.join(self.order)}" if self.order else ""
        columns = ", ".join(chosen)
        asked = f"{where}{order} LIMIT ${next_}"
        return f"SELECT {columns} FROM {self._name} WHERE {asked}"  # noqa: S608 (names, conditions)

    def _opened(self, ring: SealRing, key: Key, row: Row) -> Row:
        for name, form in self.columns.items():
            if isinstance(form, Sealed) and row[name] is not None:
                row[name] = ring.open(row[name], *form.identity(key, row))
        return row

    def _read(self, name: str, form: Form | Sealed, members: Members) -> Any:
        value = (form.form if isinstance(form, Sealed) else form).read(name, members)
        if value is None and not self.table.columns[name].nullable:
            raise refused("must not be null", name)
        return value


def _form_of(column: "sa.Column[Any]") -> Form:
    import sqlalchemy as sa

    match column.type:
        case sa.Boolean():
            return BOOL
        case sa.Integer():
            return INT
        case sa.DateTime():
            return TIME
        case sa.Text():
            return TEXT
        case _:
            raise TypeError(f"{column.table.fullname}.{column.name} has no form")


async def restore(
    connection: Connection,
    ring: SealRing,
    key: Key,
    parts: Mapping[str, TablePart],
    lines: AsyncIterator[Line],
    seen: Callable[[str, Row], Awaitable[None]] | None = None,
) -> int:
    """Insert the rows of lines, in batches; how many. `seen` is told each, opened."""
    count, size, waiting, last = 0, 0, list[tuple[object, ...]](), None
    async for one in lines:
        part = parts.get(one.kind)
        if part is None:
            raise at_line(refused(f"no line of this stream has the type {one.kind!r}"), one.number)
        if last is not None and (part is not last or len(waiting) >= _BATCH_ROWS):
            await connection.executemany(last.insert, waiting)
            size, waiting = 0, []
        last = part
        row = part.row(one)
        if seen is not None:
            await seen(one.kind, row)
        waiting.append(part.sealed(ring, key, row))
        count, size = count + 1, size + len(one.body)
        if size > _BATCH_BYTES:
            await connection.executemany(part.insert, waiting)
            size, waiting = 0, []
    if last is not None and waiting:
        await connection.executemany(last.insert, waiting)
    return count
