"""`counterfoil context`: what the model was sent."""

from typing import Annotated

import typer

from cli.entry import main_loop, read_settings
from cli.output import Form, Output

app = typer.Typer(
    no_args_is_help=True,
    help="Look at requests to the model, as an operator; `show` leaves an access record.",
)


@app.command("list", epilog="Example: counterfoil context list sesn_01m8n2v7jq9f1w3c5t8xk0r6ah")
def list_(
    session: Annotated[str, typer.Argument(help="Session id, sesn_…")],
    output: Output = Form.TABLE,
) -> None:
    """List the snapshots of a session, the oldest first: one for each attempt to ask the model."""
    from cli import authority_reads

    main_loop(authority_reads.list_snapshots(read_settings(), session, output))


@app.command(
    epilog="Example: counterfoil context show snap_01m8n2v7jq9f1w3c5t8xk0r6ah --request | jq ."
)
def show(
    snapshot: Annotated[str, typer.Argument(help="Snapshot id, snap_…")],
    request: Annotated[
        bool, typer.Option("--request", help="Print the request's exact bytes, and nothing else.")
    ] = False,
    output: Output = Form.TABLE,
) -> None:
    """Build a request again, compare it with its stored digest, and say what it covered.

    Exit code 1 when the bytes are not those that were sent.
    """
    from cli import authority_reads

    main_loop(
        authority_reads.show_snapshot(read_settings(), snapshot, output, whole_request=request)
    )
