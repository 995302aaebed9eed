"""The runner's end of `ledger.Attach`: one stream after the other, its heartbeats, and the releases
that the ledger has not confirmed yet."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

import grpc
from counterfoil.ledger.v1 import turn_pb2, turn_pb2_grpc

HEARTBEAT_SECONDS = 2.0
_LEASE_SECONDS = 10.0
_LAST_WORDS_SECONDS = 1.0

_Key = tuple[str, int]
"""Thread id and epoch of a claim."""


@dataclass
class _Owed:
    """A release that may not have reached the ledger; the answer to a later heartbeat says so."""

    release: turn_pb2.AttachRelease
    heartbeat: int


class Attachment:
    """Holds a stream, and holds one again when it is lost.

    `attached` is set while the ledger counts us alive. Leases live as long as they do for the
    ledger at least: their time counts from when the heartbeat was sent that was answered last.
    """

    def __init__(self, turns: turn_pb2_grpc.TurnServiceStub, name: str, capacity: int) -> None:
        self._turns = turns
        self._name = name
        self._capacity = capacity
        self.attached = asyncio.Event()
        self._outgoing: asyncio.Queue[turn_pb2.AttachRequest] = asyncio.Queue()
        self._owed: dict[_Key, _Owed] = {}
        self._confirmed = asyncio.Event()
        self._number = 0
        self._sent_at: dict[int, float] = {}
        self._lease_seconds = _LEASE_SECONDS
        self._renewed_at = 0.0

    async def hold(
        self,
        held: Sequence[turn_pb2.HeldClaim],
        on_response: Callable[[turn_pb2.AttachResponse], None],
        give_back: Callable[[], Awaitable[None]],
    ) -> None:
        """One stream, from hello to its end, or until no heartbeat was answered for a lease's time.

        Cancelled, it lets `give_back` release everything and waits until the ledger has taken it.
        Raises Failure when the stream broke.
        """
        stream = self._open(held)
        # Tasks of their own: cancelling a read of a stream would end the stream.
        reading = asyncio.create_task(self._read(stream, on_response))
        beating = asyncio.create_task(self._beat())
        try:
            await self._until_lost(reading)
        except asyncio.CancelledError:
            await give_back()
            delivering = asyncio.create_task(self._deliver())
            await asyncio.wait(
                {reading, delivering},
                timeout=_LAST_WORDS_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
            delivering.cancel()
            raise
        finally:
            self.attached.clear()
            for task in (reading, beating):
                task.cancel()
            stream.cancel()
            await asyncio.gather(reading, beating, return_exceptions=True)

    def release(self, release: turn_pb2.AttachRelease) -> None:
        """Gives a lease back, over the next stream if this one is lost: a release that got lost
        would count against its turn."""
        key = release.claim.thread.thread_id, release.claim.epoch
        self._owed[key] = _Owed(release, self._number)
        if self.attached.is_set():
            self._send(self._owed[key])

    def _open(
        self, held: Sequence[turn_pb2.HeldClaim]
    ) -> "grpc.aio.StreamStreamCall[turn_pb2.AttachRequest, turn_pb2.AttachResponse]":
        self._outgoing = asyncio.Queue()
        self._sent_at.clear()
        self._lease_seconds = _LEASE_SECONDS
        owed = [owed.release.claim for owed in self._owed.values()]
        hello = turn_pb2.AttachHello(
            runner_name=self._name, capacity=self._capacity, held=[*held, *owed]
        )
        self._renewed_at = _now()
        self._outgoing.put_nowait(turn_pb2.AttachRequest(hello=hello))
        return self._turns.Attach(_drain(self._outgoing))

    async def _until_lost(self, reading: "asyncio.Task[None]") -> None:
        while not reading.done():
            left = self._renewed_at + self._lease_seconds - _now()
            if left <= 0:
                return
            # What is left grows with every answer, so that it is looked at now and then.
            await asyncio.wait({reading}, timeout=min(left, HEARTBEAT_SECONDS))
        reading.result()

    async def _read(
        self,
        stream: AsyncIterable[turn_pb2.AttachResponse],
        on_response: Callable[[turn_pb2.AttachResponse], None],
    ) -> None:
        async for response in stream:
            match response.WhichOneof("message"):
                case "attached":
                    self._lease_seconds = response.attached.lease_ttl_ms / 1000
                    on_response(response)
                    self.attached.set()
                    self._repeat_owed(response.attached)
                case "heartbeat":
                    self._answered(response.heartbeat.number)
                case _:
                    on_response(response)

    def _answered(self, number: int) -> None:
        sent_at = self._sent_at.pop(number, None)
        if sent_at is None:
            return
        self._renewed_at = max(self._renewed_at, sent_at)
        for key, owed in tuple(self._owed.items()):
            if owed.heartbeat < number:
                del self._owed[key]
        self._confirmed.set()

    def _repeat_owed(self, attached: turn_pb2.Attached) -> None:
        """Releases what the ledger still counts as ours; the rest it knows, or has passed on."""
        kept = {(claim.thread.thread_id, claim.epoch) for claim in attached.kept}
        for key, owed in tuple(self._owed.items()):
            if key in kept:
                owed.heartbeat = self._number
                self._send(owed)
            else:
                del self._owed[key]

    def _send(self, owed: _Owed) -> None:
        self._outgoing.put_nowait(turn_pb2.AttachRequest(release=owed.release))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            self._send_heartbeat()

    def _send_heartbeat(self) -> None:
        self._number += 1
        self._sent_at[self._number] = _now()
        beat = turn_pb2.AttachHeartbeat(number=self._number)
        self._outgoing.put_nowait(turn_pb2.AttachRequest(heartbeat=beat))

    async def _deliver(self) -> None:
        """Waits until the ledger has confirmed all releases."""
        while self._owed:
            self._confirmed.clear()
            self._send_heartbeat()
            await self._confirmed.wait()


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _drain(
    queue: "asyncio.Queue[turn_pb2.AttachRequest]",
) -> AsyncIterator[turn_pb2.AttachRequest]:
    while True:
        yield await queue.get()
