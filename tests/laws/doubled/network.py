"""The network: a call waits in a parcel until the schedule decides what becomes of it.

A request may arrive, be lost, arrive after its sender gave up, or arrive twice; its answer may be
lost or held back. A sender that dies leaves its request on the way.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, ClassVar

from counterfoil.ledger.v1 import turn_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons
from google.protobuf.message import Message

from foundation.errors import Failure, name_of

CURRENT: ContextVar[str] = ContextVar("actor", default="")
"""Whose task runs: a runner's name, `tools`, or nobody's."""

Inner = Callable[..., Any]


class Where(Enum):
    """Where a parcel is."""

    WAITING = auto()
    SERVED = auto()
    """The request arrived, and the service works on it."""
    ANSWERED = auto()
    """The answer is held back."""
    OVER = auto()


@dataclass(eq=False)
class Parcel:
    """One call."""

    actor: str
    method: str
    serve: Callable[[], Coroutine[Any, Any, Any]]
    future: "asyncio.Future[Any]"
    request: Message | None = None
    where: Where = Where.WAITING
    hold: bool = False
    lose: bool = False
    twice: bool = False
    result: Any = None
    error: BaseException | None = None

    @property
    def label(self) -> str:
        """The method and what the request is about, as faults name calls."""
        return f"{self.method} {_about(self.request)}"

    def tell(self) -> None:
        """The answer arrives."""
        self.where = Where.OVER
        if self.future.done():
            return
        if self.lose:
            self.fail()
        elif self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)

    def fail(self) -> None:
        """The caller learns that nobody answers."""
        if not self.future.done():
            self.future.set_exception(_unavailable(f"{self.method} was not answered"))


@dataclass(eq=False)
class Late:
    """A request that is still on its way."""

    method: str
    actor: str
    serve: Callable[[], Coroutine[Any, Any, Any]]


@dataclass
class Net:
    """Everything that is on its way, in the order in which it was sent."""

    parcels: list[Parcel] = field(default_factory=list[Parcel])
    late: list[Late] = field(default_factory=list[Late])
    dead: set[str] = field(default_factory=set[str])
    wrong: list[str] = field(default_factory=list[str])
    trace: list[str] = field(default_factory=list[str])
    failures: dict[str, str] = field(default_factory=dict[str, str])
    """What each actor was refused last."""
    previews: list[turn_pb2.Preview] = field(default_factory=list[turn_pb2.Preview])
    serving: "set[asyncio.Task[Any]]" = field(default_factory=set["asyncio.Task[Any]"])

    def log(self, *words: object) -> None:
        self.trace.append(" ".join(map(str, words)))

    def blame(self, what: str) -> None:
        """Something happened that must not happen."""
        self.log("!!!", what)
        self.wrong.append(what)

    async def send(
        self,
        method: str,
        serve: Callable[[], Coroutine[Any, Any, Any]],
        request: Message | None = None,
        seconds: float | None = None,
    ) -> Any:
        """Called by an actor: the answer, or Failure."""
        actor = CURRENT.get()
        if actor in self.dead:
            await asyncio.get_running_loop().create_future()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        parcel = Parcel(actor, method, serve, future, request)
        self.parcels.append(parcel)
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            raise Failure(reasons.ERROR_REASON_DEADLINE_EXCEEDED, f"{method} timed out") from None
        finally:
            self._left(parcel)

    def _left(self, parcel: Parcel) -> None:
        """The caller does not wait any more; its request may still be on the way."""
        if parcel in self.parcels:
            self.parcels.remove(parcel)
            if parcel.where is Where.WAITING:
                self.late.append(Late(parcel.method, parcel.actor, parcel.serve))

    # What the schedule decides.

    def deliver(self, parcel: Parcel) -> None:
        """The request arrives."""
        parcel.where = Where.SERVED
        self.log(parcel.actor, "→", parcel.label, *_flags(parcel))
        if parcel.twice:
            self.late.append(Late(parcel.method, parcel.actor, parcel.serve))
        self._serve(parcel.method, parcel.serve, lambda task: self._served(parcel, task))

    def drop(self, parcel: Parcel, *, late: bool) -> None:
        """The caller is told that nobody answered; the request is lost, or arrives later."""
        self.log(parcel.actor, "✗", parcel.label, "late" if late else "lost")
        self.parcels.remove(parcel)
        parcel.where = Where.OVER
        if late:
            self.late.append(Late(parcel.method, parcel.actor, parcel.serve))
        parcel.fail()

    def answer(self, parcel: Parcel) -> None:
        """A held answer arrives."""
        self.log(parcel.actor, "←", parcel.method)
        parcel.tell()

    def arrive(self, late: Late) -> None:
        """A late request arrives; nobody hears the answer."""
        self.late.remove(late)
        self.log("late", late.actor, "→", late.method)
        self._serve(late.method, late.serve, lambda task: self._note(late, task))

    def _serve(
        self,
        method: str,
        serve: Callable[[], Coroutine[Any, Any, Any]],
        done: "Callable[[asyncio.Task[Any]], None]",
    ) -> None:
        token = CURRENT.set("")
        try:
            task = asyncio.get_running_loop().create_task(serve(), name=f"serve {method}")
        finally:
            CURRENT.reset(token)
        self.serving.add(task)
        task.add_done_callback(self.serving.discard)
        task.add_done_callback(done)

    def _served(self, parcel: Parcel, task: "asyncio.Task[Any]") -> None:
        self._note(parcel, task)
        if task.cancelled():
            parcel.error = _unavailable(f"{parcel.method} was cut off")
        else:
            parcel.error = task.exception()
            parcel.result = None if parcel.error is not None else task.result()
        parcel.where = Where.ANSWERED
        if not parcel.hold:
            parcel.tell()

    def _note(self, sent: "Parcel | Late", task: "asyncio.Task[Any]") -> None:
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Failure):
            why = f"{sent.method} {name_of(error.reason)} {error.text}"
            self.log("  ", why)
            if isinstance(sent, Parcel):
                self.failures[sent.actor] = why
            if error.reason in _BUGS:
                self.blame(why)


_BUGS = (reasons.ERROR_REASON_INTERNAL, reasons.ERROR_REASON_CORRUPT)


class Wire:
    """A channel of an actor through the network."""

    rewrite: "ClassVar[Callable[[str, Any], None] | None]" = None
    """What a mutant does to requests before a service sees them."""

    def __init__(self, inner: Any, net: Callable[[], Net]) -> None:
        self._inner = inner
        self._net = net

    def unary_unary(self, path: str, *args: object, **kwargs: object) -> Inner:
        inner = self._inner.unary_unary(path, *args, **kwargs)
        method = path.rpartition(".")[2].replace("Service/", ".")

        async def call(
            request: Message,
            *,
            timeout: float | None = None,  # noqa: ASYNC109  (the name that stubs pass)
            **_: object,
        ) -> Any:
            sent = type(request)()
            sent.CopyFrom(request)
            net = self._net()
            if isinstance(request, turn_pb2.PublishPreviewsRequest):
                net.previews.extend(request.previews)
                return await inner(sent, timeout=timeout)
            if Wire.rewrite is not None:
                Wire.rewrite(method, sent)
            return await net.send(method, lambda: inner(sent, timeout=timeout), sent, timeout)

        return call

    def unary_stream(self, path: str, *_: object, **__: object) -> Inner:
        return _none(path)

    def stream_unary(self, path: str, *_: object, **__: object) -> Inner:
        return _none(path)

    def stream_stream(self, path: str, *args: object, **kwargs: object) -> Inner:
        """Attach; a runner's own wire gives it."""
        return _none(path)


class RunnerWire(Wire):
    """A runner's channel to the ledger: with `Attach`, whose messages wait in `lines`."""

    def __init__(self, inner: Any, net: Callable[[], Net]) -> None:
        super().__init__(inner, net)
        self.lines: list[Line] = []

    def stream_stream(self, path: str, *args: object, **kwargs: object) -> Inner:
        inner = self._inner.stream_stream(path, *args, **kwargs)

        def call(requests: AsyncIterator[turn_pb2.AttachRequest], **_: object) -> "Line":
            line = Line(inner, requests, self._net())
            self.lines.append(line)
            return line

        return call


class Line:
    """One `Attach` stream. What the ledger says waits in `inbox` until the schedule pushes it."""

    def __init__(
        self, inner: Inner, requests: AsyncIterator[turn_pb2.AttachRequest], net: Net
    ) -> None:
        self.actor = CURRENT.get()
        self.inbox: list[Any] = []
        self._net = net
        self._arrived: asyncio.Queue[Any] = asyncio.Queue()
        token = CURRENT.set("")
        try:
            self._stream = inner(self._up(requests))
            self._pump = asyncio.get_running_loop().create_task(self._down())
        finally:
            CURRENT.reset(token)
        self.open = True

    async def _up(
        self, requests: AsyncIterator[turn_pb2.AttachRequest]
    ) -> AsyncIterator[turn_pb2.AttachRequest]:
        async for request in requests:
            if self.actor in self._net.dead:
                await asyncio.get_running_loop().create_future()
            if request.WhichOneof("message") == "release":
                reason = turn_pb2.ReleaseReason.Name(request.release.reason)
                self._net.log(self.actor, "releases", reason, request.release.detail)
                if reason.endswith(("FAILED", "CORRUPT")):
                    why = self._net.failures.get(self.actor, "")
                    self._net.blame(f"released: {reason}: {request.release.detail}: {why}")
            yield request

    async def _down(self) -> None:
        try:
            async for response in self._stream:
                if response.WhichOneof("message") == "heartbeat" and not self.inbox:
                    self._arrived.put_nowait(response)
                else:
                    self.inbox.append(response)
            self.inbox.append(StopAsyncIteration())
        except Failure as failure:
            self.inbox.append(failure)

    def push(self) -> None:
        """The next message arrives."""
        message = self.inbox.pop(0)
        self._net.log(self.actor, "⇐", _pushed(message))
        self._arrived.put_nowait(message)

    def cut(self) -> None:
        """The connection breaks: the ledger notices at once, the runner with its next message."""
        if self.open:
            self.open = False
            self._stream.cancel()
            self._pump.cancel()
            self.inbox = [_unavailable("the stream broke")]

    def __aiter__(self) -> "Line":
        return self

    async def __anext__(self) -> Any:
        message = await self._arrived.get()
        if isinstance(message, BaseException):
            raise message
        return message

    def cancel(self) -> bool:
        self.open = False
        self.inbox.clear()
        self._pump.cancel()
        return bool(self._stream.cancel())


def _none(path: str) -> Inner:
    def call(*_: object, **__: object) -> None:
        raise ValueError(f"{path} is not for runners")

    return call


def _unavailable(text: str) -> Failure:
    return Failure(reasons.ERROR_REASON_UNAVAILABLE, text)


def _flags(parcel: Parcel) -> list[str]:
    return [name for name in ("hold", "lose", "twice") if getattr(parcel, name)]


def _about(request: Any) -> str:
    words: list[str] = []
    if request is None:
        return ""
    fields = request.DESCRIPTOR.fields_by_name
    if "fence" in fields:
        words.append(f"ep {request.fence.epoch}")
    if "round" in fields:
        words.append(f"round {request.round}")
    for name in ("commit", "kind"):
        if name in fields and fields[name].enum_type is not None:
            value = getattr(request, name)
            words.append(fields[name].enum_type.values_by_number[value].name.split("_KIND_")[-1])
    if "operation_id" in fields:
        words.append(request.operation_id[-6:])
    if "operation_ids" in fields:
        words.extend(id[-6:] for id in request.operation_ids)
    return " ".join(words)


def _pushed(message: Any) -> str:
    if isinstance(message, BaseException):
        return repr(message)
    kind = message.WhichOneof("message")
    if kind != "claim":
        return str(kind)
    claim = message.claim
    words = ["claim", f"ep {claim.epoch}", "takeover" if claim.takeover else "clean"]
    words.append(turn_pb2.TurnState.Name(claim.state).removeprefix("TURN_STATE_"))
    words += ["interrupted"] if claim.interrupted else []
    return " ".join([*words, f"round {claim.round}", claim.turn_id[-6:]])
