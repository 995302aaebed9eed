"""`counterfoil sessions`: what the public surface says of sessions, with the workspace's key."""

from typing import Annotated

import typer

from cli.entry import main_loop, read_settings
from cli.output import Form, Output

app = typer.Typer(
    no_args_is_help=True,
    help="Look at sessions, and fork them, with the key in COUNTERFOIL_API_KEY.",
)

_EXAMPLE = "sesn_01m8n2v7jq9f1w3c5t8xk0r6ah"

Session = Annotated[str, typer.Argument(help="Session id, sesn_…")]


@app.command("list", epilog="Example: counterfoil sessions list --status idle -o json | jq -r .id")
def list_(
    status: Annotated[
        list[str] | None,
        typer.Option(help="Only idle, running, rescheduling or terminated ones; may be repeated."),
    ] = None,
    agent: Annotated[str, typer.Option(help="Only sessions of this agent, agent_…")] = "",
    archived: Annotated[bool, typer.Option("--archived", help="Archived ones too.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest first.")] = 20,
    output: Output = Form.TABLE,
) -> None:
    """List sessions, the newest first."""
    from cli import session_reads

    wanted = session_reads.Wanted(tuple(status or ()), agent, archived, limit)
    main_loop(session_reads.list_sessions(read_settings(), wanted, output))


@app.command(epilog=f"Example: counterfoil sessions events {_EXAMPLE} --type agent.message")
def events(
    session: Session,
    type: Annotated[
        list[str] | None, typer.Option(help="Only this event type; may be repeated.")
    ] = None,
    newest: Annotated[bool, typer.Option("--newest", help="The newest first.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 1000,
    output: Output = Form.TABLE,
) -> None:
    """List the history of a session; queued input stands last. With -o json: whole events."""
    from cli import session_reads

    wanted = session_reads.WantedEvents(session, tuple(type or ()), newest, limit)
    main_loop(session_reads.list_events(read_settings(), wanted, output))


@app.command(epilog=f"Example: counterfoil sessions tail {_EXAMPLE} --no-from-start -o json")
def tail(
    session: Session,
    from_start: Annotated[bool, typer.Option(help="Print the history first.")] = True,
    follow: Annotated[bool, typer.Option(help="Go on with what happens next.")] = True,
    output: Output = Form.TABLE,
) -> None:
    """Print a session's events as they happen, until the session is over or you press Ctrl-C.

    A server that goes away is waited for: no event is lost or printed twice. With -o json: whole
    events, one a line.
    """
    from cli import session_tail

    wanted = session_tail.Wanted(session, from_start, follow)
    main_loop(session_tail.tail(read_settings(), wanted, output))


@app.command(epilog=f"Example: counterfoil sessions fork {_EXAMPLE} --title 'plan B'")
def fork(
    session: Session,
    at: Annotated[
        str,
        typer.Option(help="Event that the history goes through, sevt_…; else the newest."),
    ] = "",
    title: Annotated[
        str | None, typer.Option(help="Title of the fork; else that of the session.")
    ] = None,
    output: Output = Form.TABLE,
) -> None:
    """Make a session whose model has seen what this one's had at the end of a turn."""
    from cli import session_reads

    main_loop(session_reads.fork(read_settings(), session, at, title, output))
