"""`counterfoil journal`: what was executed for a session."""

import getpass
from typing import Annotated

import typer

from cli.entry import main_loop, read_settings
from cli.output import Form, Output

app = typer.Typer(
    no_args_is_help=True,
    help="Look at journaled operations, as an operator: each look leaves an access record.",
)


@app.callback()
def _group() -> None:
    """Keeps `list` a command of its own."""


@app.command(
    "list", epilog="Example: counterfoil journal list sesn_01m8n2v7jq9f1w3c5t8xk0r6ah -o json"
)
def list_(
    session: Annotated[str, typer.Argument(help="Session id, sesn_…")],
    purpose: Annotated[
        str, typer.Option(help="Why you look; kept in the access record.")
    ] = "counterfoil journal list",
    output: Output = Form.TABLE,
) -> None:
    """List every operation of a session in the order of creation: provider calls and tool calls.

    State `ambiguous` means that a call was started and nobody knows whether it happened; it is
    never repeated. With -o json also what the model was shown of each outcome.
    """
    from cli import authority_reads

    reader = f"{getpass.getuser()} (counterfoil)"
    main_loop(authority_reads.list_operations(read_settings(), session, reader, purpose, output))
