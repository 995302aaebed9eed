"""`counterfoil files`: what an operator does with the bytes of files."""

from typing import Annotated

import typer

from cli.entry import main_loop, read_settings
from cli.output import Form, Output

app = typer.Typer(no_args_is_help=True, help="Look after the bytes of files.")


@app.callback()
def _group() -> None:
    """Keeps `sweep` a command of its own."""


@app.command("sweep", epilog="Example: counterfoil files sweep -o json")
def sweep(
    grace_hours: Annotated[
        float,
        typer.Option(min=0, max=8760, help="What is younger than this stays."),
    ] = 24,
    output: Output = Form.TABLE,
) -> None:
    """Collect artifacts that nothing refers to, and bytes without a row, now.

    Runners do the same by themselves. Condemns what nothing refers to, deletes what was condemned a
    grace period ago, and removes objects that a crash left in the object store. Exit code 1 when
    something had to be left for another time; run it again then.
    """
    from cli import sweeping

    async def work() -> None:
        if not await sweeping.sweep(read_settings(), int(grace_hours * 3_600_000), output):
            raise typer.Exit(1)

    main_loop(work())
