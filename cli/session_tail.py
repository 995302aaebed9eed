"""Follows a session's events, through restarts of the server."""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import typer
from counterfoil.ledger.v1 import session_pb2, session_pb2_grpc
from counterfoil.types.v1 import error_reason_pb2

from cli.operator import channel
from cli.output import Form
from cli.summaries import summary
from foundation.errors import Failure
from foundation.settings import Settings

_WAIT_SECONDS = 0.25
_WAIT_SECONDS_MAX = 2.0


@dataclass(frozen=True)
class Wanted:
    """What to follow. Without `follow` the history ends it."""

    session_id: str
    from_start: bool
    follow: bool


async def tail(settings: Settings, wanted: Wanted, form: Form) -> None:
    """Prints events until the session is over. Raises Failure, unless the server is only away."""
    key = settings.api_key.get_secret_value()
    async with channel(settings, "ledger", key) as ledger:
        stub = session_pb2_grpc.SessionServiceStub(ledger.as_channel())
        head = await _head(stub, wanted.session_id)
        async for batch in _batches(stub, wanted, head):
            for frame in batch.frames:
                _show(form, frame)


async def _head(stub: session_pb2_grpc.SessionServiceStub, session_id: str) -> int:
    """The newest position now: what a subscription without a place starts behind."""
    stream = stub.StreamEvents(session_pb2.StreamEventsRequest(session_id=session_id))
    try:
        async for batch in stream:
            return batch.position_through
    finally:
        stream.cancel()
    return 0


async def _batches(
    stub: session_pb2_grpc.SessionServiceStub, wanted: Wanted, head: int
) -> AsyncGenerator[session_pb2.StreamEventsResponse]:
    """Every batch once and in order, of as many streams as it takes."""
    place = 0 if wanted.from_start else head
    wait = _WAIT_SECONDS
    while wanted.follow or place < head:
        request = session_pb2.StreamEventsRequest(
            session_id=wanted.session_id, position_after=place
        )
        try:
            async for batch in stub.StreamEvents(request):
                yield batch
                place, wait = batch.position_through, _WAIT_SECONDS
                if batch.end or (not wanted.follow and place >= head):
                    return
        except Failure as failure:
            if failure.reason != error_reason_pb2.ERROR_REASON_UNAVAILABLE:
                raise
        if wait == _WAIT_SECONDS:
            typer.echo(f"counterfoil: cut off behind position {place}; reconnecting …", err=True)
        await asyncio.sleep(wait)
        wait = min(wait * 2, _WAIT_SECONDS_MAX)


def _show(form: Form, frame: session_pb2.StreamFrame) -> None:
    if form is Form.JSON:
        typer.echo(frame.json.decode())
        return
    event = json.loads(frame.json)
    when = event.get("processed_at") or "queued"
    line = f"{frame.position:>6}  {when:<24}  {frame.type:<28}  {summary(event)}"
    typer.echo(line.rstrip())
