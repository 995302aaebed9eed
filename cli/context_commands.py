"""`counterfoil context`: what the model was sent."""

import getpass
from typing import Annotated

import typer

from cli.entry import main_loop, read_settings
from cli.output import Form, Output

app = typer.Typer(
    no_args_is_help=True,
    help="Look at requests to the model, as an operator; `show` and `diff` leave access records.",
)

_EXAMPLE = "snap_01m8n2v7jq9f1w3c5t8xk0r6ah"

Snapshot = Annotated[str, typer.Argument(help="Snapshot id, snap_…")]


@app.command("list", epilog="Example: counterfoil context list sesn_01m8n2v7jq9f1w3c5t8xk0r6ah")
def list_(
    session: Annotated[str, typer.Argument(help="Session id, sesn_…")],
    newest: Annotated[bool, typer.Option("--newest", help="The newest first.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 1000,
    output: Output = Form.TABLE,
) -> None:
    """List the snapshots of a session, the oldest first: one for each attempt to ask the model.

    OUTCOME is what became of the request: answered, failed, lost (started, end not known), sent
    (not ended yet) or not_sent. HISTORY says what was recorded so that it fits: pruned results,
    compacted beginnings, images_omitted.
    """
    from cli import context_reads

    wanted = context_reads.Wanted(session, newest, limit)
    main_loop(context_reads.list_snapshots(read_settings(), wanted, output))


@app.command(epilog=f"Example: counterfoil context show {_EXAMPLE} --request | jq .")
def show(
    snapshot: Snapshot,
    request: Annotated[
        bool, typer.Option("--request", help="Print the request's exact bytes, and nothing else.")
    ] = False,
    output: Output = Form.TABLE,
) -> None:
    """Build a request again, compare it with its stored digest, and say what it was made of.

    Exit code 1 when the bytes are not those that were sent.
    """
    from cli import context_reads

    main_loop(context_reads.show_snapshot(read_settings(), snapshot, output, whole_request=request))


@app.command(epilog=f"Example: counterfoil context diff {_EXAMPLE} {_EXAMPLE[:-1]}j")
def diff(
    snapshot: Snapshot,
    other: Annotated[str, typer.Argument(help="Another snapshot of the same session, snap_…")],
    output: Output = Form.TABLE,
) -> None:
    """Build two requests of a session again, and say where they differ first and why.

    The cause `appended` is the usual one: nothing that both hold differs, so the provider's prompt
    cache holds. Every other cause names a change of the session or a record of the context
    service: parameters, profile, system, tools, checkpoint, transition, withheld, summary.
    """
    from cli import context_reads

    main_loop(context_reads.diff_snapshots(read_settings(), snapshot, other, output))


@app.command(
    epilog="Example: counterfoil context redact sesn_01m8n2v7jq9f1w3c5t8xk0r6ah"
    " --event sevt_01m8n2v7jq9f1w3c5t8xk0r6ah --reason 'a key was pasted'"
)
def redact(
    session: Annotated[str, typer.Argument(help="Session id, sesn_…")],
    reason: Annotated[str, typer.Option(help="Why; kept in the access records.")],
    operation: Annotated[
        str, typer.Option(help="The operation whose result is redacted, op_….")
    ] = "",
    event: Annotated[
        str, typer.Option(help="A message, an answer's event, or one with a tool result, sevt_….")
    ] = "",
    output: Output = Form.TABLE,
) -> None:
    """Take a tool result, a message or an answer of the model out of a session and its forks.

    The model is not shown it again, summaries that cover it are revoked, and what every service
    keeps of it is erased. An agent.message, or a call, goes with its whole answer. Repeating the
    command is harmless; one that was cut off must be repeated. What other events say of it stays:
    see docs/operating/redaction.md.
    """
    from cli import redacting

    if bool(operation) == bool(event):
        raise typer.BadParameter("give either --operation or --event")
    asked = redacting.Asked(f"{getpass.getuser()} (counterfoil)", reason)
    main_loop(redacting.redact(read_settings(), session, operation, event, asked, output))
