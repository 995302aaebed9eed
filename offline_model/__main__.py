"""``python -m offline_model``: prints ``listening http://HOST:PORT`` when it is ready."""

import argparse
import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import Server

from offline_model.app import App
from offline_model.windows import WINDOW_TOKENS, Windows

_PR_SET_PDEATHSIG = 1
KEEP_ALIVE_SECONDS = 3600


class Protocol(HttpToolsProtocol):
    """Lets the application reach its connection, so that it can break it."""

    def on_message_begin(self) -> None:
        """Adds the transport to the scope of the request that begins."""
        super().on_message_begin()
        cast(dict[str, Any], self.scope)["offline.transport"] = self.transport


class ModelServer(Server):
    """Says when it listens, and ends with code 0 on SIGTERM and SIGINT."""

    def __init__(self, config: Config, app: App, url: str) -> None:
        super().__init__(config)
        self._offline_app = app
        self._url = url

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Prints the one line that says: ready."""
        await super().startup(sockets=sockets)
        sys.stdout.write(f"listening {self._url}\n")
        sys.stdout.flush()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Replaces uvicorn's handlers, which raise the signal again at the end."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        yield

    def _end(self) -> None:
        self.should_exit = True
        self._offline_app.gates.release_all()


def main() -> None:
    """Serves until SIGTERM or SIGINT."""
    options = _arguments()
    if options.parent_death:
        _die_with_parent()
    sock = socket.create_server((options.host, options.port), backlog=2048)
    host, port = sock.getsockname()[:2]
    app = App(options.record, options.scenarios, Windows(dict(options.window)))
    config = Config(
        cast(Any, app),
        http=Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=1,
    )
    ModelServer(config, app, f"http://{host}:{port}").run(sockets=[sock])


class _Options(argparse.Namespace):
    host: str
    port: int
    record: Path | None
    scenarios: Path | None
    parent_death: bool
    window: list[tuple[str, int]]


def _arguments() -> _Options:
    parser = argparse.ArgumentParser(prog="offline_model", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: a free port")
    parser.add_argument("--record", type=Path, metavar="DIR", help="keep every request here")
    parser.add_argument("--scenarios", type=Path, metavar="DIR", help="files for offline/<name>")
    parser.add_argument(
        "--parent-death", action="store_true", help="end when the parent process dies (Linux)"
    )
    parser.add_argument(
        "--window",
        type=_window,
        action="append",
        default=[],
        metavar="[MODEL=]TOKENS",
        help=f"the models' window, or one model's; {WINDOW_TOKENS} if nothing is said",
    )
    return parser.parse_args(namespace=_Options())


def _window(text: str) -> tuple[str, int]:
    """A model, or nothing for every model, and its tokens."""
    model, _, tokens = text.rpartition("=")
    if int(tokens) < 1:
        raise ValueError(tokens)
    return model, int(tokens)


def _die_with_parent() -> None:
    """SIGKILL when the parent is gone, also if it died before we could ask for it."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
