"""What a terminal shows while something takes long. Nothing of it reaches a file or a pipe."""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

Item = TypeVar("Item")


@contextmanager
def waiting(text: str) -> Generator[None]:
    """Shows that something without a known end goes on, and for how long."""
    with _shown(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()) as shown:
        shown.add_task(text, total=None)
        yield


def steps(items: Sequence[Item], text: str) -> Iterable[Item]:
    """The items, with a bar of how many were done."""
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed} of")
    with _shown(*columns, TextColumn("{task.total}"), TimeElapsedColumn()) as shown:
        yield from shown.track(items, description=text)


@contextmanager
def counting(text: str) -> Generator[Callable[[int], None]]:
    """Shows how many things were done, of an unknown number; the yielded call adds to them."""
    columns = SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.completed}")
    with _shown(*columns, TimeElapsedColumn()) as shown:
        task = shown.add_task(text, total=None)
        yield lambda more: shown.advance(task, more)


def _shown(*columns: ProgressColumn) -> Progress:
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
