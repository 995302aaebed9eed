"""`counterfoil demo`: a session waits for a human, survives a kill, and continues.

The demo runs `examples/hitl_gate` as a user would, with a scripted human, and checks through the
public API what it claims. With COUNTERFOIL_EXAMPLE_BASE_URL it runs against a server that is there
already, and kills nothing.
"""

import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import typer
from anthropic import Anthropic
from rich.console import Console
from rich.text import Text

from cli.demo_stage import (
    EXAMPLE,
    DemoFailed,
    Example,
    Server,
    counterfoil,
    free_ports,
    without_settings,
)
from foundation.settings import DEVELOPMENT_KEY

_STEP_SECONDS = 25.0
_SESSION = "session sesn_"
_PROMPT = "Decision [approve/reject]: "


def demo() -> None:
    """Show a session that waits for a human, survives kill -9 of everything, and continues.

    Runs in a temporary folder with the offline model; exit code 1 when anything is not as it
    should be. With COUNTERFOIL_EXAMPLE_BASE_URL it uses the server there, and kills nothing.
    """
    console = Console(highlight=False)
    base_url = os.environ.get("COUNTERFOIL_EXAMPLE_BASE_URL", "")
    try:
        if not EXAMPLE.exists():
            raise DemoFailed("examples/hitl_gate is not here: run the demo in a source checkout")
        with _play(console, base_url) as play:
            play.run()
    except DemoFailed as error:
        console.print(f"\n[bold red]The demo failed:[/] {error}", soft_wrap=True)
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@contextmanager
def _play(console: Console, base_url: str) -> Generator["_Play"]:
    """The demo in a temporary folder; whatever it started ends with the block."""
    with ExitStack() as stack:
        folder = tempfile.TemporaryDirectory(prefix="counterfoil-demo-", ignore_cleanup_errors=True)
        path = Path(stack.enter_context(folder))
        server = None
        if not base_url:
            port, grpc_port = free_ports(2)
            server = Server(path, port, grpc_port)
            stack.callback(server.stop)
        try:
            yield _Play(console, stack, path, base_url, server)
        except DemoFailed:
            if server is not None:
                console.print(Text(server.log_tail(), style="dim"), soft_wrap=True)
            raise


@dataclass
class _Play:
    console: Console
    stack: ExitStack
    folder: Path
    base_url: str
    server: Server | None
    step_number: int = 0

    def run(self) -> None:
        """Every act, in order. Raises DemoFailed."""
        if self.server is not None:
            self.step("Start everything in a temporary folder: PostgreSQL, services, a model")
            seconds = self.server.start()
            self.note(f"ready after {seconds:.1f} s at {self.server.url}")
        self.step("Start the example: two receipts, two tools that only the application can answer")
        example = self.example(keep=True)
        example.read_until(_PROMPT, _STEP_SECONDS)
        session_id = _session_id(example.text)
        self.note("One call is answered; the other needs a human. The session waits, idle.")
        if self.server is not None:
            self.kill_and_restart(self.server)
        self.step("The human answers at last, in the same terminal as before")
        example.say("reject")
        self.expect(example.finish(_STEP_SECONDS) == 0, "the example did not succeed")
        self.step("Check the history through the public API")
        self.check_history(session_id)
        if self.server is not None:
            self.step("Recompute both hash chains: counterfoil verify")
            self.verify(self.server, session_id)
        self.step("Start the example once more: it finds everything done, and removes its traces")
        example = self.example(keep=False)
        self.expect(example.finish(_STEP_SECONDS) == 0, "the example did not succeed")
        self.expect(_PROMPT not in example.text, "the human was asked twice")
        self.console.print("\n[bold green]Done.[/] Nothing was lost, asked twice or decided twice.")

    def kill_and_restart(self, server: Server) -> None:
        """The point of it all."""
        self.step(f"kill -9 {server.pid}: the whole server, while the session waits")
        server.kill()
        self.note("It is gone. The human has not even noticed.")
        self.step("Start it again on the same folder")
        self.note(f"ready after {server.start():.1f} s")

    def check_history(self, session_id: str) -> None:
        """Each call has exactly one result, and the turn ended once."""
        with Anthropic(base_url=self.url, api_key=self.api_key) as client:
            events = list(client.beta.sessions.events.list(session_id))
        calls = [event.id for event in events if event.type == "agent.custom_tool_use"]
        results = Counter(
            event.custom_tool_use_id for event in events if event.type == "user.custom_tool_result"
        )
        ends = [event.stop_reason.type for event in events if event.type == "session.status_idle"]
        types = Counter(event.type for event in events)
        self.expect(len({event.id for event in events}) == len(events), "an event stands twice")
        self.expect(len(calls) == 2, f"there are {len(calls)} calls instead of 2")
        self.expect(results == Counter(calls), "a call does not have exactly one result")
        self.expect(ends.count("end_turn") == 1 and ends[-1] == "end_turn", f"idles: {ends}")
        self.expect(types["user.message"] == 1, "the receipts were sent more than once")
        self.note(f"{len(events)} events, each once; 2 calls, 1 result each; 1 end of the turn")

    def verify(self, server: Server, session_id: str) -> None:
        """Ask the operator's command."""
        done = subprocess.run(
            counterfoil("verify", session_id),
            env=server.environment(),
            cwd=server.folder,
            capture_output=True,
            text=True,
            timeout=_STEP_SECONDS,
            check=False,
        )
        for line in (done.stdout + done.stderr).splitlines():
            self.quote(line)
        self.expect(done.returncode == 0, "the chains do not verify")

    def example(self, *, keep: bool) -> Example:
        """A process of the example on its state file."""
        environment = without_settings() | {
            "COUNTERFOIL_EXAMPLE_BASE_URL": self.url,
            "COUNTERFOIL_API_KEY": self.api_key,
            "COUNTERFOIL_EXAMPLE_KEEP_RESOURCES": "1" if keep else "",
        }
        model = os.environ.get("COUNTERFOIL_EXAMPLE_MODEL_ID")
        if model and self.server is None:
            environment["COUNTERFOIL_EXAMPLE_MODEL_ID"] = model
        example = Example(environment, self.folder / "example.sqlite3", self.quote)
        self.stack.callback(example.stop)
        return example

    @property
    def url(self) -> str:
        """The server's address."""
        return self.server.url if self.server else self.base_url

    @property
    def api_key(self) -> str:
        """Ours for our own server, the user's for another one."""
        if self.server is not None:
            return DEVELOPMENT_KEY
        return os.environ.get("COUNTERFOIL_API_KEY", DEVELOPMENT_KEY)

    def step(self, text: str) -> None:
        """Say what comes next."""
        self.step_number += 1
        self.console.print(f"\n[bold cyan]{self.step_number}.[/] [bold]{text}[/]", soft_wrap=True)

    def note(self, text: str) -> None:
        """Say what happened."""
        self.console.print(Text(f"   {text}", style="green"), soft_wrap=True)

    def quote(self, line: str) -> None:
        """Show a line that another program printed."""
        self.console.print(Text(f"   │ {line}", style="dim"), soft_wrap=True)

    def expect(self, holds: bool, otherwise: str) -> None:
        """Raises DemoFailed when something does not hold."""
        if not holds:
            raise DemoFailed(otherwise)


def _session_id(text: str) -> str:
    _, found, rest = text.partition(_SESSION)
    if not found:
        raise DemoFailed("the example named no session")
    return "sesn_" + rest.split(".")[0].split()[0]
