"""The `counterfoil` command."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import uvloop

from cli import (
    context_commands,
    file_commands,
    huge_pages,
    journal_commands,
    logs,
    memory,
    seal_keys,
    session_commands,
)
from cli.entry import main_loop, one_line_errors, read_settings
from cli.output import Form, Output
from foundation import metrics, telemetry
from foundation.settings import DEVELOPMENT_KEY, SERVICES, Settings
from foundation.storage import ConfigurationError

if TYPE_CHECKING:
    from cli.processes import Started

app = typer.Typer(
    no_args_is_help=True,
    help="Counterfoil: a durable runtime for long-running AI agents.",
    pretty_exceptions_enable=False,
)
turns_app = typer.Typer(no_args_is_help=True, help="Recover turns.")
app.add_typer(session_commands.app, name="sessions")
app.add_typer(journal_commands.app, name="journal")
app.add_typer(context_commands.app, name="context")
app.add_typer(file_commands.app, name="files")
app.add_typer(turns_app, name="turns")
app.add_typer(seal_keys.app, name="seal-keys")


def process_loop(
    name: str, settings: Settings, work: Callable[[Settings], Coroutine[Any, Any, None]]
) -> None:
    """Runs a process that goes on until it is stopped, with its logs and traces."""
    logs.configure(settings.log_level, settings.log_format)
    known_as = f"counterfoil-{name}" if name else "counterfoil"
    telemetry.configure(known_as)
    try:
        with one_line_errors(), suppress(KeyboardInterrupt):
            if name:
                measure(settings, known_as, embedded=False)
            uvloop.run(work(settings))
    finally:
        metrics.shutdown()
        telemetry.shutdown()


def measure(settings: Settings, known_as: str, *, embedded: bool) -> None:
    """Lets metrics be read: where the settings say, or for `run` at the usual port if it is free.

    Raises OSError and ValueError for an address that cannot be served.
    """
    address = settings.metrics_address
    chosen = address or (metrics.DEFAULT_ADDRESS if embedded else "")
    metrics.configure(known_as, "" if chosen == "off" else chosen, required=bool(address))


@app.command()
def run() -> None:
    """Start everything on this machine: PostgreSQL, all services, REST, gRPC and a model.

    Data stays in COUNTERFOIL_DATA_DIR (./.counterfoil); starting again continues where it was.
    Without COUNTERFOIL_MODEL_BASE_URL the offline model answers.
    """
    process_loop("", read_settings(), _run)


async def _run(settings: Settings) -> None:
    from cli.embedded import running

    stop = stop_event()
    measured = partial(measure, settings, "counterfoil", embedded=True)
    async with running(settings, owned=measured) as embedded:
        _banner(embedded.rest_url, embedded.grpc_address, embedded.settings, embedded.offline)
        await until(stop, embedded.kernel.failure())


def stop_event() -> asyncio.Event:
    """An event that SIGINT and SIGTERM set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


async def until(stop: asyncio.Event, failure: Coroutine[Any, Any, None]) -> None:
    """Waits for a signal, or raises the error of failed background work."""
    memory.settle()
    huge_pages.keep()

    async def signalled() -> None:
        await stop.wait()

    waiting = {asyncio.create_task(signalled()), asyncio.create_task(failure)}
    done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    for task in done:
        task.result()


def _banner(rest_url: str, grpc_address: str, settings: Settings, offline: bool) -> None:
    key = settings.api_key.get_secret_value()
    model = (
        "offline; for a real one set COUNTERFOIL_MODEL_BASE_URL and COUNTERFOIL_MODEL_API_KEY"
        if offline
        else settings.model_base_url
    )
    shown = key if key == DEVELOPMENT_KEY else "the one in COUNTERFOIL_API_KEY"
    lines = (
        ("REST", rest_url),
        ("gRPC", grpc_address),
        ("API key", shown),
        ("data", str(settings.data_dir.absolute())),
        ("model", model),
    )
    typer.echo("Counterfoil is ready.")
    for name, value in lines:
        typer.echo(f"  {name:<8} {value}")
    typer.echo("Stop with Ctrl-C.")
    sys.stdout.flush()


@app.command()
def serve(
    service: Annotated[str, typer.Argument(help=f"One of {', '.join(SERVICES)}.")],
) -> None:
    """Serve one service over gRPC, as one process of a split deployment."""
    if service not in SERVICES:
        typer.echo(f"counterfoil: no service {service!r}; one of {', '.join(SERVICES)}", err=True)
        raise typer.Exit(2)
    from cli import processes

    process_loop(
        service,
        read_settings(),
        lambda settings: _hold(service, processes.service(settings, service)),
    )


@app.command()
def runner() -> None:
    """Run turns: a process that attaches to the ledger and calls the provider."""
    from cli import processes

    process_loop(
        "runner", read_settings(), lambda settings: _hold("runner", processes.runner(settings))
    )


@app.command()
def gateway() -> None:
    """Serve REST and SSE in front of the services."""
    from cli import processes

    process_loop(
        "gateway", read_settings(), lambda settings: _hold("gateway", processes.gateway(settings))
    )


async def _hold(name: str, process: "AbstractAsyncContextManager[Started]") -> None:
    """Runs one process until a signal or a failure ends it."""
    stop = stop_event()
    async with process as started:
        typer.echo(f"{name} is ready at {started.address}")
        sys.stdout.flush()
        await until(stop, started.kernel.failure())


@app.command()
def migrate() -> None:
    """Bring the schemas up to date of all services whose database URL is set."""
    main_loop(_migrate(read_settings()))


async def _migrate(settings: Settings) -> None:
    from cli.composition import STATEFUL
    from cli.composition import migrate as migrate_all
    from cli.progress import steps

    if not any(settings.database_url_of(service) for service in STATEFUL):
        raise ConfigurationError("no COUNTERFOIL_<SERVICE>_DATABASE_URL is set")
    changed: list[str] = []
    for service in steps(STATEFUL, "Migrating"):
        changed += await migrate_all(settings, (service,))
    typer.echo(f"changed: {', '.join(changed) or 'nothing'}")


@app.command()
def demo() -> None:
    """Show a session that waits for a human, survives a kill of the server, and continues."""
    from cli.demo import demo as show

    show()


@app.command(epilog="Example: counterfoil doctor -o json | jq 'select(.state == \"failed\")'")
def doctor(output: Output = Form.TABLE) -> None:
    """Check this installation, and say what to do about what is wrong.

    Looks at Python and packages, the data folder, keys, PostgreSQL and its durability, schemas,
    ports, services, the model's endpoint and the clock. Changes nothing. Exit code 1 when a check
    failed.
    """

    async def work() -> None:
        from cli.doctor import doctor as look

        if not await look(read_settings(), output):
            raise typer.Exit(1)

    main_loop(work())


@app.command()
def verify(
    session: Annotated[str, typer.Argument(help="Session id, sesn_…")],
    head: Annotated[
        str, typer.Option(help="A log head kept outside, <position>:<hex>; proves the tail.")
    ] = "",
    transcript_head: Annotated[
        str, typer.Option(help="A transcript head kept outside, <seq>:<hex>.")
    ] = "",
    requests: Annotated[
        bool, typer.Option("--requests", help="Build every request again, byte for byte, too.")
    ] = False,
    output: Output = Form.TABLE,
) -> None:
    """Recompute both hash chains of a session end to end and compare what they vouch for, and
    recompute what was taken from the model's history.

    Prints the heads, to be kept outside, and names the first place where something does not hold.
    Exit code 1 then.
    """
    from cli import operator

    async def work() -> None:
        kept = operator.Kept(log=head, transcript=transcript_head)
        if not await operator.verify(read_settings(), session, kept, output, requests=requests):
            raise typer.Exit(1)

    main_loop(work())


@app.command(epilog="Example: counterfoil export sesn_01m8n2v7jq9f1w3c5t8xk0r6ah --output s.jsonl")
def export(
    session: Annotated[str, typer.Argument(help="Session id, sesn_…")],
    output: Annotated[
        Path | None, typer.Option(help="File to write; standard output without it.")
    ] = None,
) -> None:
    """Write everything that a session is as lines of JSON, with the key in COUNTERFOIL_API_KEY.

    The file holds the conversation in readable form, with what proves it: keep it as you would
    keep the database.
    """
    from cli.export_commands import export_session

    main_loop(export_session(read_settings(), session, output))


@app.command("import", epilog="Example: counterfoil import s.jsonl")
def import_(
    file: Annotated[str, typer.Argument(help="An exported file; - for standard input.")],
) -> None:
    """Take an exported session in, as an operator, into an installation that does not have it.

    Ids, positions, times and digests stay what they are, and the session goes on here. Nothing is
    written unless the file is whole and everything in it holds; an import that was cut off is
    simply repeated.
    """
    from cli.importing.sending import import_session

    async def work() -> None:
        session_id = await import_session(read_settings(), file)
        typer.echo(f"{session_id} is here. Verify it: counterfoil verify {session_id}")

    main_loop(work())


@turns_app.command("release")
def turns_release(turn: Annotated[str, typer.Argument(help="Turn id, turn_…")]) -> None:
    """Give a quarantined turn one more attempt."""
    from cli import operator

    main_loop(operator.release(read_settings(), turn))
