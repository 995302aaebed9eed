"""Requests from long transcripts, and long sessions."""

import hashlib
import time
from pathlib import Path
from typing import Any

from counterfoil.context.v1 import context_pb2, context_pb2_grpc
from counterfoil.ledger.v1 import session_pb2_grpc
from counterfoil.transcript.v1 import transcript_pb2, transcript_pb2_grpc
from counterfoil.types.v1 import runtime_pb2
from counterfoil.types.v1.capability_pb2 import CapabilityProfile
from counterfoil.types.v1.reference_pb2 import Attempt, Fence, Head, ThreadRef

from bench import chat, inside
from bench.bare import BARE_READY
from bench.http import Connection, Events
from bench.plan import Plan, Sample
from bench.rows.ledger import queued
from bench.server import Server, folder, free_ports
from bench.stats import median, short
from cli.embedded import Embedded
from foundation.settings import DEVELOPMENT_KEY
from services.context.service import ContextServicer

_BLOCKS = 2_000
_BLOCK_BYTES = 2_500
_PAIRS_PREPARED = 25
"""A request is made once in so many pairs while a transcript grows; in life it is each time."""
_INPUT = transcript_pb2.TRANSCRIPT_ENTRY_KIND_INPUT
_ANSWER = transcript_pb2.TRANSCRIPT_ENTRY_KIND_ANSWER
_WINDOW_MODEL = "grok-4-fast-reasoning"
"""A window of two million tokens, so that nothing is refused."""


async def request(plan: Plan) -> list[Sample]:
    """Warm: one more message on a thread that the process knows. Cold: the first request of a
    process that was just started, on a thread that lived in another one, or never in any."""
    with folder() as place:
        await inside.measured(plan, "context:fill_inside", place)
        return await inside.measured(plan, "context:request_inside", place)


async def fill_inside(plan: Plan, place: Path) -> list[Sample]:
    """Writes the transcripts. On those of the first threads requests are made on the way."""
    async with inside.system(place) as system:
        for number in range(plan.count(6) + plan.count(3)):
            thread = _Thread(system, number)
            for pair in range(_BLOCKS // 2):
                await thread.append(_INPUT, pair, blocks=[_block(number, 2 * pair)])
                await thread.append(_ANSWER, pair, blocks=[_block(number, 2 * pair + 1)])
                if number < plan.count(6) and pair % _PAIRS_PREPARED == 0:
                    blocks = [_block(number, index) for index in range(2 * pair + 2)]
                    await thread.prepared(-pair, blocks, [])
    return []


async def request_inside(plan: Plan, place: Path) -> list[Sample]:
    """Asks for requests, and compares every byte with what was written."""
    cold: list[float] = []
    warm: list[float] = []
    entries: list[float] = []
    async with inside.system(place) as system:
        for number in range(plan.count(6)):
            thread = _Thread(system, number)
            await thread.find_head()
            blocks = [_block(number, index) for index in range(_BLOCKS)]
            await thread.prepared(1, blocks, cold)
            for more in range(plan.count(20)):
                blocks += [
                    _block(number, _BLOCKS + 2 * more),
                    _block(number, _BLOCKS + 1 + 2 * more),
                ]
                await thread.append(_INPUT, _BLOCKS + more, blocks=[blocks[-2]])
                await thread.append(_ANSWER, _BLOCKS + more, blocks=[blocks[-1]])
                await thread.prepared(2 + more, blocks, warm)
        for number in range(plan.count(6), plan.count(6) + plan.count(3)):
            thread = _Thread(system, number)
            await thread.find_head()
            blocks = [_block(number, index) for index in range(_BLOCKS)]
            await thread.prepared(1, blocks, entries)
    size = (
        f"{_BLOCKS:,} blocks of {_BLOCK_BYTES:,} B; PrepareRequest in process, its commit included"
    )
    first = "p50 of the first request of each thread after a restart"
    return [
        Sample("request_warm", median(warm), n=len(warm), note=f"p50; {size}", series=warm),
        Sample(
            "request_cold",
            median(cold),
            n=len(cold),
            note=f"{first}; {size}; the process before had kept most of its history in one row, and"
            " the entries behind that are read one by one; every byte was compared with what was"
            " written",
            series=cold,
        ),
        Sample(
            "request_entries",
            median(entries),
            n=len(entries),
            note=f"{first}, with nothing kept: all entries are read and checked; {size}",
            series=entries,
        ),
    ]


class _Thread:
    """A thread that only the transcript and the context know."""

    def __init__(self, system: Embedded, number: int) -> None:
        kernel = system.kernel
        self._transcript = transcript_pb2_grpc.TranscriptServiceStub(kernel.channel("transcript"))
        self._context = context_pb2_grpc.ContextServiceStub(kernel.channel("context"))
        self._ref = ThreadRef(
            workspace_id="wrkspc_bench", session_id=f"sesn_{number}", thread_id=f"sthr_{number}"
        )
        self._fence = Fence(thread=self._ref, epoch=1)
        self._head = Head()

    async def find_head(self) -> None:
        """Reads where the thread ends."""
        request = transcript_pb2.FenceRequest(fence=self._fence, turn_id="turn_1")
        self._head = (await self._transcript.Fence(request)).head

    async def append(self, kind: Any, round: int, **content: Any) -> None:
        """Appends one entry."""
        request = transcript_pb2.AppendEntryRequest(
            fence=self._fence,
            expected_head=self._head,
            entry_id=f"tent_{self._head.seq + 1}",
            kind=kind,
            turn_id=f"turn_0{round}",
            content=transcript_pb2.EntryContent(**content),
        )
        if kind == _ANSWER:
            request.attempt.CopyFrom(Attempt(epoch=1, number=1))
        self._head = (await self._transcript.AppendEntry(request)).head

    async def prepared(self, number: int, blocks: list[bytes], times: list[float]) -> None:
        """Asks for a request; notes its milliseconds and compares its bytes."""
        request = context_pb2.PrepareRequestRequest(
            fence=self._fence,
            turn_id=f"turn_{number}",
            attempt=Attempt(epoch=1, number=1),
            transcript_head=self._head,
            runtime=runtime_pb2.SessionRuntime(
                model=_WINDOW_MODEL,
                profile=CapabilityProfile(id="offline", version=1, adapter="messages"),
            ),
            stream=True,
        )
        began = time.perf_counter()
        response = await self._context.PrepareRequest(request)
        times.append((time.perf_counter() - began) * 1e3)
        if not response.HasField("prepared"):
            raise ValueError(f"the request was refused: {response.refused}")
        body = response.prepared.body
        roles = (b"user", b"assistant")
        messages = b",".join(
            b'{"role":"%b","content":[%b]}' % (roles[index % 2], block)
            for index, block in enumerate(blocks)
        )
        digest = response.prepared.snapshot.request_digest
        if b'"messages":[' + messages + b"]" not in body or hashlib.sha256(body).digest() != digest:
            raise ValueError("the request is not byte for byte what was written")


def _block(thread: int, index: int) -> bytes:
    text = f"{thread} {index} " + hashlib.sha256(f"{thread} {index}".encode()).hexdigest() * 40
    return b'{"type":"text","text":"%b"}' % text[: _BLOCK_BYTES - 27].encode()


async def long(plan: Plan) -> list[Sample]:
    """Turns of one session; a bare server in place of the model, whose time counts nowhere."""
    with folder() as place:
        (port,) = free_ports(1)
        model = Server("bare", place, ("-m", "bench.bare", str(port)), {})
        model.start()
        try:
            model.ready(BARE_READY)
            environment = {
                "COUNTERFOIL_MODEL_BASE_URL": f"http://127.0.0.1:{port}",
                "COUNTERFOIL_MODEL_API_KEY": "bench",
                "COUNTERFOIL_MODEL_PROFILE": "offline",
            }
            return await inside.measured(plan, "context:long_inside", place, environment)
        finally:
            model.stop()


async def long_inside(plan: Plan, place: Path) -> list[Sample]:
    """Times the admission of each message and each PrepareRequest."""
    turns = max(plan.count(10_000), 60)
    admitted: list[float] = []
    whole: list[float] = []
    prepared = _timed_requests()
    async with inside.system(place) as system:
        agent = await chat.Place.make(system.rest_url, model=_WINDOW_MODEL)
        connection = await Connection.open(system.rest_url)
        session = await agent.session(connection)
        events = await Events.open(system.rest_url, session)
        channel = system.kernel.channel("ledger", credential=DEVELOPMENT_KEY)
        ledger = session_pb2_grpc.SessionServiceStub(channel)
        for number in range(turns):
            if number and number % 1000 == 0:
                plan.say(f"{number:,} of {turns:,} turns")
            began = time.perf_counter()
            await ledger.SubmitEvents(queued(session, text="hi"))
            admitted.append(time.perf_counter() - began)
            await chat.over(events)
            whole.append(time.perf_counter() - began)
        events.close()
        connection.close()
    # Around turn 10, and the last ones: medians, because one turn alone says nothing.
    early, late = slice(5, 25), slice(-20, None)

    def sum_of(part: slice) -> float:
        return (median(admitted[part]) + median(prepared[part])) * 1e3

    return [
        Sample(
            "long_session",
            sum_of(late) / sum_of(early),
            n=turns,
            note=f"medians of turns 6-25 and of the last 20 of {turns:,}: admission"
            f" {_ms(admitted[early])} and {_ms(admitted[late])} ms, PrepareRequest (reduce and"
            f" materialize) {_ms(prepared[early])} and {_ms(prepared[late])} ms; the whole turn,"
            f" with the provider's copy of the growing request, {_ms(whole[early])} and"
            f" {_ms(whole[late])} ms",
            series=[value * 1e3 for value in whole[:: max(turns // 200, 1)]],
        )
    ]


def _ms(values: list[float]) -> str:
    return short(median(values) * 1e3)


def _timed_requests() -> list[float]:
    times: list[float] = []
    original = ContextServicer.PrepareRequest

    async def timed(
        self: ContextServicer, request: context_pb2.PrepareRequestRequest, context: Any
    ) -> context_pb2.PrepareRequestResponse:
        began = time.perf_counter()
        response = await original(self, request, context)
        times.append(time.perf_counter() - began)
        return response

    ContextServicer.PrepareRequest = timed
    return times
