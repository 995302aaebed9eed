"""Servers that do as a test says, names that resolve as it says, and a guard between."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from ipaddress import ip_address

import httpcore2

from foundation.egress.addresses import Address
from foundation.egress.allowing import Allowed, parse_allowed
from foundation.egress.dialing import real_network
from foundation.egress.errors import EgressError
from foundation.egress.exchange import exchange
from foundation.egress.guard import Guard
from foundation.egress.limits import Limits
from foundation.egress.redirects import Hop
from foundation.egress.resolving import Unresolved
from foundation.egress.targets import parse
from foundation.trust import verifying

Act = Callable[["Call"], Awaitable[None]]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
QUICK = Limits(connect_seconds=10, idle_seconds=10, total_seconds=20)
PUBLIC = "93.184.216.34"
_TLS = verifying()
_CUT_OFF_SECONDS = 10


@dataclass(slots=True)
class Call:
    """One request that a server got, and the way back."""

    line: str
    headers: dict[str, str]
    body: bytes
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, status: str, body: bytes = b"", **headers: str) -> None:
        lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join([*lines, "", ""]).encode() + body)


@dataclass(slots=True)
class Site:
    """What a server saw."""

    port: int = 0
    calls: list[Call] = field(default_factory=list[Call])
    connections: int = 0
    server_names: list[str | None] = field(default_factory=list[str | None])


@asynccontextmanager
async def listening(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Site]:
    """A server on a free port; its connections are cut off in the end."""
    made = Site()
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.connections += 1
        task = asyncio.create_task(answer(reader, writer))
        task.add_done_callback(lambda _: writer.transport.abort())
        tasks.add(task)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await serve(reader, writer)

    if tls is not None:
        tls.sni_callback = lambda _, name, __: made.server_names.append(name)
    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await _cut_off(tasks)


async def _cut_off(tasks: set[asyncio.Task[None]]) -> None:
    """Ends what serves, and waits only so long. Raises what one of them failed with."""
    if not tasks:
        return
    for task in tasks:
        task.cancel()
    done, waiting = await asyncio.wait(tasks, timeout=_CUT_OFF_SECONDS)
    await asyncio.sleep(0)  # what was aborted is closed one turn of the loop later
    assert not waiting
    for task in done:
        if not task.cancelled():
            task.result()


@asynccontextmanager
async def site(act: Act, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Site]:
    """A server that answers each request as `act` says."""
    calls: list[Call] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (call := await _read(reader, writer)) is not None:
            calls.append(call)
            await act(call)

    async with listening(serve, tls) as made:
        made.calls = calls
        yield made


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Call | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    headers = {
        name.lower(): value.strip()
        for name, _, value in (line.partition(":") for line in head[1:] if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Call(head[0], headers, body, writer)


class Names:
    """A resolver: each name has a list of answers, the last of which is repeated."""

    def __init__(self, **answers: Sequence[str]) -> None:
        self.answers = {name.replace("_", "."): list(given) for name, given in answers.items()}
        self.asked: list[str] = []
        self.holds: asyncio.Event | None = None

    async def resolve(self, host: str, port: int) -> Sequence[Address]:
        self.asked.append(host)
        if self.holds is not None:
            await self.holds.wait()
        if host not in self.answers:
            raise Unresolved(is_absent=True)
        given = self.answers[host]
        answer = given.pop(0) if len(given) > 1 else given[0]
        return [ip_address(text) for text in answer.split()]

    def close(self) -> None: ...


class Network(httpcore2.AsyncNetworkBackend):
    """The Internet of a test: every address leads to a port of this machine."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.dialled: list[tuple[str, int]] = []
        self.deaf: set[str] = set()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  (the base class's name)
        *_: object,
        **__: object,
    ) -> httpcore2.AsyncNetworkStream:
        self.dialled.append((host, port))
        if host in self.deaf:
            raise httpcore2.ConnectError("deaf")
        return await real_network().connect_tcp("127.0.0.1", self.port, timeout)


@dataclass(slots=True)
class Got:
    """An answer, read."""

    status: int
    body: bytes
    headers: dict[str, str]
    urls: list[str]


def guarding(
    made: Site, names: Names, allow: str = "", tls: ssl.SSLContext | None = None
) -> tuple[Guard, Network]:
    """A guard whose network leads to `made`."""
    network = Network(made.port)
    allowed = parse_allowed(allow) if allow else Allowed()
    return Guard(allowed, resolver=names, network=network, tls=tls or _TLS), network


async def ask(guard: Guard, hop: Hop | str, limits: Limits = QUICK) -> Got:
    """One exchange over a transport of its own."""
    hop = Hop("GET", parse(hop), {}) if isinstance(hop, str) else hop
    async with guard.transport(limits) as transport, exchange(transport, hop) as answer:
        body = await answer.read()
        return Got(answer.status, body, dict(answer.headers), [str(url) for url in answer.urls])


async def failure(guard: Guard, hop: Hop | str, limits: Limits = QUICK) -> EgressError:
    """The error of an exchange that must not succeed."""
    try:
        got = await ask(guard, hop, limits)
    except EgressError as error:
        return error
    raise AssertionError(f"answered with {got}")


def within(**bounds: object) -> Limits:
    """The quick limits with others in their place."""
    return replace(QUICK, **bounds)
