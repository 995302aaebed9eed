"""What happens around every call, in process and over sockets alike.

Order: trace, context, admission, validation, the method under its deadline, and the one mapping of
exceptions on failures.
"""

import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
)
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass
from typing import Any, cast

import structlog
from counterfoil.types.v1 import error_reason_pb2 as reasons
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from foundation import measures, telemetry
from foundation.errors import Failure, invalid
from foundation.idempotency import HEADER, METADATA, Replays, checked
from foundation.json import InvalidJson, validate
from foundation.objects.store import StoreUnavailable
from foundation.rpc.admission import Admission, is_post, is_public
from foundation.rpc.context import CallContext, serving
from foundation.rpc.deadline import within
from foundation.storage.errors import SealBroken, Unavailable

REQUEST_ID = "x-request-id"

_log = structlog.get_logger("counterfoil.rpc")

Unary = Callable[[Any, Any], Awaitable[Message]]
Streaming = Callable[[Any, Any], AsyncIterator[Message]]


@dataclass(frozen=True)
class Method:
    """One method of the contract with the code that serves it."""

    path: str
    descriptor: MethodDescriptor
    behaviour: Callable[..., Any]
    public: bool
    replayed: bool
    """Whether a repetition under an idempotency key gets the first answer: every public POST."""

    @classmethod
    def of(cls, path: str, descriptor: MethodDescriptor, behaviour: Callable[..., Any]) -> "Method":
        """A method; whether it is public is its service's property."""
        public = is_public(descriptor.containing_service)
        return cls(path, descriptor, behaviour, public, is_post(descriptor))

    @property
    def owner(self) -> str:
        """Name of the service that owns it: `ledger`."""
        return self.descriptor.containing_service.full_name.split(".")[1]


ReplaysOf = Callable[[str], Replays | None]
"""The stored answers of a service, by its name."""


class Pipeline:
    """Runs methods."""

    def __init__(self, admission: Admission, replays: ReplaysOf = lambda _: None) -> None:
        self._admission = admission
        self._replays = replays

    async def unary(
        self, method: Method, request: Message, metadata: Mapping[str, str], seconds: float | None
    ) -> Message:
        """One request, one response; raises only Failure (and CancelledError)."""
        with _span(method, metadata):
            try:
                call = await self._admit(method, request, metadata, seconds)
                _check(request)
                with serving(call), within(seconds):
                    if METADATA in metadata and method.replayed:
                        key = checked(metadata[METADATA])
                        return await self._once(method, request, call.workspace_id, key)
                    return await method.behaviour(request, None)
            except Exception as error:
                raise as_failure(error, method.path) from error

    async def _once(self, method: Method, request: Message, workspace: str, key: str) -> Message:
        """The answer to the first call with this key."""
        replays = self._replays(method.owner)
        if replays is None:
            raise Failure(
                reasons.ERROR_REASON_UNSUPPORTED, "this service keeps no answers", path=HEADER
            )
        behaviour = cast(Unary, method.behaviour)
        return await replays.run(
            method.descriptor, workspace, key, request, lambda: behaviour(request, None)
        )

    async def streaming(
        self,
        method: Method,
        request: Message | AsyncIterable[Message],
        metadata: Mapping[str, str],
        seconds: float | None,
    ) -> AsyncGenerator[Message]:
        """One request or many, a stream of responses; raises only Failure."""
        parent = telemetry.extract(metadata)
        with telemetry.span_apart(method.path, telemetry.SpanKind.SERVER, parent=parent) as span:
            try:
                with telemetry.current(span):
                    call = await self._admit(method, request, metadata, seconds)
                argument = request
                if isinstance(request, Message):
                    _check(request)
                else:
                    argument = _checked(request)
                # A context variable set around a yield would leak into the consumer's task, so
                # each step of the generator gets the call's context of its own.
                behaviour = cast(Streaming, method.behaviour)
                with serving(call):
                    responses = behaviour(argument, None)
                async with aclosing(cast(AsyncGenerator[Message], responses)):
                    while True:
                        with serving(call), telemetry.current(span):
                            try:
                                response = await anext(responses)
                            except StopAsyncIteration:
                                return
                        # What a stream does for days is no part of the trace that opened it.
                        span = None
                        yield response
            except Exception as error:
                raise as_failure(error, method.path) from error

    async def _admit(
        self,
        method: Method,
        request: object,
        metadata: Mapping[str, str],
        seconds: float | None,
    ) -> CallContext:
        request_id = metadata.get(REQUEST_ID) or None
        deadline = None if seconds is None else time.monotonic() + seconds
        if not method.public:
            await self._admission.internal(metadata)
            return CallContext(request_id, deadline=deadline, request=request)
        principal = await self._admission.public(metadata)
        return CallContext(
            request_id, principal.workspace_id, principal.api_key_id, deadline, request
        )


def as_failure(error: Exception, where: str) -> Failure:
    """The failure that a caller may see; unexpected errors go to the log and become INTERNAL."""
    match error:
        case Failure():
            if error.reason == reasons.ERROR_REASON_FENCED:
                measures.FENCES.cell(where.split(".")[1]).value += 1
            return error
        case InvalidJson():
            return invalid(error.path, error.message)
        case Unavailable():
            return Failure(reasons.ERROR_REASON_UNAVAILABLE, "the database is not reachable")
        case StoreUnavailable():
            _log.warning("object store does not serve", method=where, why=str(error))
            return Failure(reasons.ERROR_REASON_UNAVAILABLE, str(error))
        case SealBroken():
            _log.error("sealed data does not open", method=where, exc_info=error)
            return Failure(reasons.ERROR_REASON_CORRUPT, "stored data does not open")
        case TimeoutError():
            return Failure(reasons.ERROR_REASON_DEADLINE_EXCEEDED, "the call took too long")
        case _:
            _log.error("unexpected error", method=where, exc_info=error)
            return Failure(reasons.ERROR_REASON_INTERNAL, "internal error")


def _check(request: Message) -> None:
    for violation in validate(request):
        raise invalid(violation.path, violation.message)


async def _checked(requests: AsyncIterable[Message]) -> AsyncIterator[Message]:
    async for request in requests:
        _check(request)
        yield request


def _span(method: Method, metadata: Mapping[str, str]) -> AbstractContextManager[object]:
    if not telemetry.recording():
        return telemetry.NOTHING
    parent = telemetry.extract(metadata)
    return telemetry.span(method.path, telemetry.SpanKind.SERVER, parent=parent)
