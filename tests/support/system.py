"""A whole Counterfoil in processes of its own: started, killed at failpoints, started again.

The processes are forked from a zygote and share nothing with the test but sockets and files. The
offline model and PostgreSQL live longer than they do, so that the model's records count how often
the provider was asked. `mode` is "embedded" (one process) or "split" (each service, a runner and a
gateway, over real gRPC); tests do not see the difference.
"""

import asyncio
import os
import random
import shutil
import socket
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import anthropic
import httpx2
from counterfoil.context.v1 import context_pb2_grpc
from counterfoil.files.v1 import artifacts_pb2_grpc
from counterfoil.journal.v1 import journal_pb2_grpc
from counterfoil.ledger.v1 import session_pb2_grpc, turn_pb2_grpc
from counterfoil.transcript.v1 import transcript_pb2_grpc

from cli.composition import STATEFUL
from foundation.datafolder import DataFolder
from foundation.rpc.remote import RemoteChannel
from foundation.settings import DEVELOPMENT_KEY, SERVICES
from foundation.storage import SealRing
from tests.support.model import Model
from tests.support.platform_tool import SOCKET, Effects, counting
from tests.support.postgres import SessionPostgres
from tests.support.zygote import Dead, Forked, Zygote

Mode = Literal["embedded", "split"]
MODES: tuple[Mode, ...] = ("embedded", "split")

_HOST = "127.0.0.1"
# Below the range that the kernel takes for outgoing connections.
_PORTS = range(20_000, 32_000)
_LOG_TAIL_BYTES = 6_000

LIVE: "list[System]" = []
"""Systems of the test that runs now, for its report."""

DIAGNOSES: list[str] = []
"""What systems said whose test failed, and that are gone."""


@dataclass(frozen=True)
class Role:
    """One process of the system: what it plays, and what only it is told."""

    name: str
    environment: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(eq=False)
class System:
    """A system on one data folder. `roles` are its processes in the order of their start."""

    mode: Mode
    folder: Path
    model: Model
    effects: Effects
    roles: Sequence[Role]
    environment: dict[str, str]
    rest_url: str
    addresses: dict[str, str]
    zygote: Zygote
    notes: list[str] = field(default_factory=list[str])
    """What a test wants to be shown when it fails."""
    up: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while every process runs, as far as we know."""
    _processes: dict[str, Forked] = field(default_factory=dict[str, Forked])
    _channels: list[RemoteChannel] = field(default_factory=list[RemoteChannel])
    _clients: list[anthropic.AsyncAnthropic | httpx2.AsyncClient] = field(
        default_factory=list[anthropic.AsyncAnthropic | httpx2.AsyncClient]
    )

    async def start(self, failpoints: str = "", *, record: Path | None = None) -> None:
        """Starts every process that does not run. `failpoints` as in `foundation.failpoints`;
        `record` gets the name of each one that is hit. Raises Dead when a process ends before it is
        ready; the others may be running then."""
        missing = [role for role in self.roles if self._code(role.name) is not None]
        for role in missing:
            environment = {**self.environment, **role.environment}
            environment["COUNTERFOIL_FAILPOINTS"] = failpoints
            if record is not None:
                environment["COUNTERFOIL_FAILPOINTS_RECORD"] = str(record)
            log = self._log(role.name)
            self._processes[role.name] = self.zygote.fork(role.name, environment, log)
        started = [self._processes[role.name].ready() for role in missing]
        results = await asyncio.gather(*started, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        self.up.set()

    async def died(self, seconds: float = 30) -> str:
        """Waits until a process ends; its name."""
        waiting = {
            asyncio.create_task(process.ended(), name=name)
            for name, process in self._processes.items()
            if process.code is None
        }
        try:
            async with asyncio.timeout(seconds):
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        self.up.clear()
        return done.pop().get_name()

    async def kill(self, *names: str) -> None:
        """SIGKILL of the named processes; of all without a name."""
        self.up.clear()
        chosen = [self._processes[name] for name in names or tuple(self._processes)]
        for process in chosen:
            await process.kill()

    async def kill_runner(self) -> None:
        """SIGKILL of whatever runs turns: the runner, or the one process that is everything."""
        await self.kill("runner" if self.mode == "split" else "embedded")

    def signal(self, name: str, number: int) -> None:
        """Sends a signal to a process."""
        self._processes[name].signal(number)

    async def stop(self) -> None:
        """Kills everything and closes clients and channels."""
        await self.kill()
        for channel in self._channels:
            await channel.close()
        for client in self._clients:
            await (client.aclose() if isinstance(client, httpx2.AsyncClient) else client.close())

    def client(self, **options: Any) -> anthropic.AsyncAnthropic:
        """The official client; it retries nothing unless told so."""
        chosen = {"api_key": DEVELOPMENT_KEY, "max_retries": 0, "timeout": 20.0, **options}
        client = anthropic.AsyncAnthropic(base_url=self.rest_url, **chosen)
        self._clients.append(client)
        return client

    def http(self, key: str | None = DEVELOPMENT_KEY) -> httpx2.AsyncClient:
        """A bare HTTP client of the REST surface."""
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        client = httpx2.AsyncClient(base_url=self.rest_url, headers=headers, timeout=20)
        self._clients.append(client)
        return client

    @property
    def service_key(self) -> str:
        """The credential between services."""
        return (self.folder / "service_key").read_text().strip()

    def channel(self, service: str, credential: str | None = None) -> Any:
        """A channel to a service, with the service credential unless another is given ("" for
        none)."""
        chosen = self.service_key if credential is None else credential
        channel = RemoteChannel(self.addresses[service], chosen)
        self._channels.append(channel)
        return channel.as_channel()

    @property
    def turns(self) -> turn_pb2_grpc.TurnServiceStub:
        """The ledger's internal side."""
        return turn_pb2_grpc.TurnServiceStub(self.channel("ledger"))

    @property
    def sessions(self) -> session_pb2_grpc.SessionServiceStub:
        """The ledger's public side, with the workspace key."""
        return session_pb2_grpc.SessionServiceStub(self.channel("ledger", DEVELOPMENT_KEY))

    @property
    def transcript(self) -> transcript_pb2_grpc.TranscriptServiceStub:
        """The transcript."""
        return transcript_pb2_grpc.TranscriptServiceStub(self.channel("transcript"))

    @property
    def journal(self) -> journal_pb2_grpc.JournalServiceStub:
        """The journal."""
        return journal_pb2_grpc.JournalServiceStub(self.channel("journal"))

    @property
    def artifacts(self) -> artifacts_pb2_grpc.ArtifactServiceStub:
        """The files service."""
        return artifacts_pb2_grpc.ArtifactServiceStub(self.channel("files"))

    @property
    def context(self) -> context_pb2_grpc.ContextServiceStub:
        """The context service."""
        return context_pb2_grpc.ContextServiceStub(self.channel("context"))

    def diagnosis(self) -> str:
        """Processes, the ends of their logs, and what the test noted."""
        parts = ["notes:", *self.notes[-200:]]
        for name, process in self._processes.items():
            parts.append(f"--- {name}: pid {process.pid}, ended with {process.code}")
            parts.append(_tail(self._log(name)))
        return "\n".join(parts)

    def pid(self, name: str) -> int:
        """Process id of a running role."""
        return self._processes[name].pid

    def _code(self, name: str) -> int | None:
        process = self._processes.get(name)
        return 0 if process is None else process.code

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"


@asynccontextmanager
async def system_of(
    mode: Mode,
    zygote: Zygote,
    model: Model,
    postgres: SessionPostgres | None,
    **environment: str,
) -> AsyncGenerator[System]:
    """A system that is not started yet, killed and removed at the end.

    Without `postgres` an embedded system keeps a PostgreSQL of its own in its data folder.
    """
    with tempfile.TemporaryDirectory(prefix="cf-") as name:
        folder = Path(name)
        async with counting(folder / "effects") as effects:
            if postgres is None:
                yielding = _system(mode, zygote, model, effects, folder, {}, environment)
                async with yielding as system:
                    yield system
                return
            async with postgres.database(*STATEFUL) as dsn:
                databases = {f"COUNTERFOIL_{one.upper()}_DATABASE_URL": dsn for one in STATEFUL}
                yielding = _system(mode, zygote, model, effects, folder, databases, environment)
                async with yielding as system:
                    yield system


@asynccontextmanager
async def _system(
    mode: Mode,
    zygote: Zygote,
    model: Model,
    effects: Effects,
    folder: Path,
    databases: dict[str, str],
    more: dict[str, str],
) -> AsyncGenerator[System]:
    await model.reset()
    data = folder / "data"
    ports = free_ports(len(SERVICES) + 2)
    rest = ports.pop()
    environment = {
        "PATH": os.defpath,
        "COUNTERFOIL_DATA_DIR": str(data),
        "COUNTERFOIL_MODEL_BASE_URL": model.url,
        "COUNTERFOIL_MODEL_API_KEY": "offline-key",
        "COUNTERFOIL_MODEL_PROFILE": "offline",
        "COUNTERFOIL_MODEL_RETRY_MS": "20",
        "COUNTERFOIL_TOOLS_MODULE": "tests.support.platform_tool",
        SOCKET: str(effects.path),
        **databases,
        **more,
    }
    addresses: dict[str, str]
    if mode == "embedded":
        grpc = ports.pop()
        own = {"COUNTERFOIL_PORT": str(rest), "COUNTERFOIL_GRPC_PORT": str(grpc)}
        roles = [Role("embedded", own)]
        addresses = dict.fromkeys(SERVICES, f"{_HOST}:{grpc}")
    else:
        addresses = {service: f"{_HOST}:{ports.pop()}" for service in SERVICES}
        environment |= {f"COUNTERFOIL_{k.upper()}_ADDRESS": v for k, v in addresses.items()}
        environment |= _keys(data)
        # Nobody listens there: a test that needs a store says which.
        environment.setdefault("COUNTERFOIL_S3_ENDPOINT", "http://127.0.0.1:9")
        roles = [
            Role(name, {"COUNTERFOIL_GRPC_PORT": address.rpartition(":")[2]})
            for name, address in addresses.items()
        ]
        roles += [Role("runner"), Role("gateway", {"COUNTERFOIL_PORT": str(rest)})]
    system = System(
        mode, data, model, effects, roles, environment, f"http://{_HOST}:{rest}", addresses, zygote
    )
    data.mkdir(mode=0o700, exist_ok=True)
    LIVE.append(system)
    try:
        yield system
    except BaseException:
        DIAGNOSES.append(system.diagnosis())
        raise
    finally:
        LIVE.remove(system)
        await system.stop()
        # Servers of the dead process may still be leaving their folder.
        shutil.rmtree(data, ignore_errors=True)


def _keys(data: Path) -> dict[str, str]:
    with DataFolder.open(data) as folder:
        folder.service_key()
        SealRing.generate(folder.seal_keys_file)
        return {
            "COUNTERFOIL_SERVICE_KEY_FILE": str(folder.service_key_file),
            "COUNTERFOIL_SEAL_KEYS_FILE": str(folder.seal_keys_file),
        }


def free_ports(number: int) -> list[int]:
    """Ports that nobody listens on now, below those of outgoing connections."""
    found: list[int] = []
    while len(found) < number:
        port = random.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind((_HOST, port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


def _tail(log: Path) -> str:
    if not log.exists():
        return "(no log)"
    with log.open("rb") as file:
        file.seek(max(log.stat().st_size - _LOG_TAIL_BYTES, 0))
        # Log lines are JSON, in which tracebacks stand on one line.
        return file.read().decode(errors="replace").replace("\\n", "\n").replace('\\"', '"')


__all__ = ["DIAGNOSES", "LIVE", "MODES", "Dead", "Mode", "Role", "System", "system_of"]
