"""What a runner owes the ledger arrives, and it counts itself alive no longer than the ledger does.

Each test runs in process and over a socket: there, cancelling a read ends the stream.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from counterfoil.ledger.v1 import turn_pb2, turn_pb2_grpc
from counterfoil.types.v1.reference_pb2 import ThreadRef

from foundation.errors import Failure
from foundation.rpc.admission import Admission, Principal
from foundation.rpc.host import Host
from foundation.rpc.remote import RemoteChannel
from services.runner import attachment
from services.runner.attachment import Attachment

KEY = "service-credential-of-this-test-deployment"
DRAINING = turn_pb2.RELEASE_REASON_DRAINING
FAILED = turn_pb2.RELEASE_REASON_FAILED


class Ledger(turn_pb2_grpc.TurnServiceServicer):
    """Keeps every claim that a hello lists; tests say what else it does."""

    def __init__(self) -> None:
        self.hellos: list[turn_pb2.AttachHello] = []
        self.releases: list[turn_pb2.AttachRelease] = []
        self.released = asyncio.Event()
        self.ttl_ms = 10_000
        self.answers = True
        self.answer_delay_s = 0.0
        self.ends_at_release = False
        self.chatters = False

    async def Attach(
        self, request_iterator: Any, context: Any
    ) -> AsyncGenerator[turn_pb2.AttachResponse]:
        async for request in request_iterator:
            match request.WhichOneof("message"):
                case "hello":
                    self.hellos.append(request.hello)
                    attached = turn_pb2.Attached(
                        stream_id="s", lease_ttl_ms=self.ttl_ms, kept=request.hello.held
                    )
                    yield turn_pb2.AttachResponse(attached=attached)
                case "release":
                    self.releases.append(request.release)
                    self.released.set()
                    if self.ends_at_release:
                        return
                case _:
                    if self.chatters:
                        fenced = claim("another")
                        yield turn_pb2.AttachResponse(fenced=fenced)
                    if self.answers:
                        await asyncio.sleep(self.answer_delay_s)
                        yield turn_pb2.AttachResponse(heartbeat=request.heartbeat)


@dataclass
class Bench:
    ledger: Ledger
    attachment: Attachment
    told: "asyncio.Queue[str]"

    def hold(self, *held: turn_pb2.HeldClaim) -> "asyncio.Task[None]":
        def on(response: turn_pb2.AttachResponse) -> None:
            self.told.put_nowait(response.WhichOneof("message") or "")

        async def give_back() -> None:
            for one in held:
                self.attachment.release(release(one, DRAINING))

        return asyncio.create_task(self.attachment.hold(held, on, give_back))


def claim(thread: str = "sthr_1", epoch: int = 1) -> turn_pb2.HeldClaim:
    ref = ThreadRef(workspace_id="wrkspc_1", session_id="sesn_1", thread_id=thread)
    return turn_pb2.HeldClaim(thread=ref, epoch=epoch)


def release(
    held: turn_pb2.HeldClaim, reason: "turn_pb2.ReleaseReason.ValueType" = FAILED
) -> turn_pb2.AttachRelease:
    return turn_pb2.AttachRelease(claim=held, reason=reason)


async def nobody(key: str) -> Principal | None:
    return None


@pytest.fixture(params=["local", "remote"])
async def bench(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Bench]:
    monkeypatch.setattr(attachment, "HEARTBEAT_SECONDS", 0.02)
    serves_attach_only: Any = Ledger
    host, ledger = Host(Admission(KEY, nobody)), serves_attach_only()
    host.register(turn_pb2_grpc.add_TurnServiceServicer_to_server, ledger)
    remote: RemoteChannel | None = None
    if request.param == "remote":
        remote = RemoteChannel(f"127.0.0.1:{await host.listen('127.0.0.1:0')}", KEY)
    channel = host.channel(KEY) if remote is None else remote.as_channel()
    stub = turn_pb2_grpc.TurnServiceStub(channel)
    yield Bench(ledger, Attachment(stub, "runner", 4), asyncio.Queue())
    if remote is not None:
        await remote.close()
    await host.stop()


async def ended(holding: "asyncio.Task[None]") -> None:
    """The stream is over, however it ended."""
    await asyncio.wait_for(asyncio.gather(holding, return_exceptions=True), 10)


async def test_a_release_without_a_stream_is_made_over_the_next_one(bench: Bench) -> None:
    bench.attachment.release(release(claim()))
    holding = bench.hold(claim("sthr_2"))
    await asyncio.wait_for(bench.ledger.released.wait(), 10)
    assert list(bench.ledger.hellos[0].held) == [claim("sthr_2"), claim()]
    assert bench.ledger.releases == [release(claim())]
    holding.cancel()
    await ended(holding)


async def test_a_release_that_was_not_confirmed_is_made_again(bench: Bench) -> None:
    bench.ledger.ends_at_release = True
    holding = bench.hold()
    await bench.attachment.attached.wait()
    bench.attachment.release(release(claim()))
    await ended(holding)

    bench.ledger.ends_at_release = False
    bench.ledger.released.clear()
    holding = bench.hold()
    await asyncio.wait_for(bench.ledger.released.wait(), 10)
    assert bench.ledger.releases == [release(claim())] * 2
    holding.cancel()
    await ended(holding)

    holding = bench.hold()
    await bench.attachment.attached.wait()
    assert not bench.ledger.hellos[-1].held
    holding.cancel()
    await ended(holding)


async def test_a_runner_that_stops_gives_back_what_it_holds(bench: Bench) -> None:
    held = [claim("sthr_1"), claim("sthr_2")]
    holding = bench.hold(*held)
    await bench.attachment.attached.wait()
    holding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await holding
    assert bench.ledger.releases == [release(one, DRAINING) for one in held]


async def test_leases_count_from_the_heartbeat_that_was_answered(bench: Bench) -> None:
    """An answer that took long renews for what is left of the lease's time."""
    bench.ledger.ttl_ms, bench.ledger.answer_delay_s = 1000, 0.8
    started = asyncio.get_running_loop().time()
    await ended(bench.hold())
    # The first answer comes 0.8 s late; the next one would come 0.6 s after its lease is over.
    assert asyncio.get_running_loop().time() - started < 1.5
    assert not bench.attachment.attached.is_set()


async def test_other_messages_renew_nothing(bench: Bench) -> None:
    bench.ledger.ttl_ms, bench.ledger.answers, bench.ledger.chatters = 200, False, True
    await ended(bench.hold())
    assert not bench.attachment.attached.is_set()
    assert bench.told.qsize() > 2


async def test_a_stream_that_breaks_says_why(bench: Bench) -> None:
    stub = turn_pb2_grpc.TurnServiceStub(RemoteChannel("127.0.0.1:1", KEY).as_channel())
    lost = Bench(bench.ledger, Attachment(stub, "runner", 1), asyncio.Queue())
    with pytest.raises(Failure):
        await lost.hold()
