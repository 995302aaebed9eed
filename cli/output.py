"""What commands print: a table for people, or one JSON object a line for programs."""

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.summaries import printable


class Form(StrEnum):
    """How a command prints."""

    TABLE = "table"
    JSON = "json"


Output = Annotated[Form, typer.Option("--output", "-o", help="table, or json: one object a line.")]

Row = Mapping[str, Any]


def line(value: Any) -> None:
    """One JSON value on one line."""
    typer.echo(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def rows(form: Form, found: Iterable[Row], columns: Mapping[str, str], none: str) -> None:
    """Rows as `form` says. `columns` are heads by key: what a table shows of a row.

    A table without rows says `none`; JSON has no line then.
    """
    if form is Form.JSON:
        for row in found:
            line(row)
        return
    listed = list(found)
    if not listed:
        typer.echo(none)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in columns.values():
        table.add_column(head, overflow="fold")
    for row in listed:
        table.add_row(*(Text(cell(row.get(key))) for key in columns))
    _show(table)


def facts(form: Form, row: Row) -> None:
    """One row: a line for each of its members, or JSON."""
    if form is Form.JSON:
        line(row)
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for key, value in row.items():
        table.add_row(key, Text(cell(value)))
    _show(table)


def cell(value: Any) -> str:
    """A value in a cell; empty for none."""
    if value is None:
        return ""
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _show(table: Table) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        # A pipe has no width, and ids must stay whole for whoever cuts columns.
        console = Console(highlight=False, width=400)
    console.print(table)
