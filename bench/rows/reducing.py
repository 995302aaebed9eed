"""What a round costs in a long history: reduced and materialized warm, cold, and summarized."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from counterfoil.context.v1 import context_pb2, context_pb2_grpc
from counterfoil.files.v1 import artifacts_pb2_grpc
from counterfoil.journal.v1 import journal_pb2, journal_pb2_grpc
from counterfoil.transcript.v1 import transcript_pb2, transcript_pb2_grpc
from counterfoil.types.v1 import runtime_pb2
from counterfoil.types.v1.capability_pb2 import CapabilityProfile
from counterfoil.types.v1.mapping_pb2 import ToolCallMapping
from counterfoil.types.v1.reference_pb2 import Attempt, Fence, Head, ThreadRef

from bench import inside
from bench.plan import Plan, Sample
from bench.server import folder
from bench.stats import median, short
from cli.embedded import Embedded
from services.context.cache import Warm
from services.context.history import History
from services.context.losses import NO_LOSSES
from services.context.materializer import request_tail
from services.context.prefixes import Prefixes

_SIZES = (10, 1_000, 10_000)
_ROUNDS_OF_TURN = 4
_RESULT = b'[{"type":"text","text":"%b"}]'
_RESULT_BYTES = 400
_HEAD = b'{"model":"offline","messages":['
_SMALL_WINDOW_TOKENS = 300_000
_WIDE_WINDOW_TOKENS = 50_000_000


async def reducing(plan: Plan) -> list[Sample]:
    """Histories of inputs, calls and results, of three lengths."""
    with folder() as place:
        return await inside.measured(plan, "reducing:reducing_inside", place)


async def reducing_inside(plan: Plan, place: Path) -> list[Sample]:
    """Times the same functions that `PrepareRequest` calls, in the process of the authorities."""
    async with inside.system(place) as system:
        threads = [_Thread(system, max(round(size * plan.scale), 10)) for size in _SIZES]
        warm: list[float] = []
        colds: list[float] = []
        entries: list[float] = []
        for thread in threads:
            plan.say(f"a history of {thread.size:,} entries")
            await thread.fill()
            entries.append(await thread.from_entries(plan.count(5)))
            await thread.keep()
            colds.append(await thread.cold(plan.count(5)))
            warm.append(await thread.warm(plan.count(40)))
        longest = threads[-1]
        rows = await longest.rows(plan.count(5))
        compacted = await longest.compacted()
    sizes = " / ".join(f"{thread.size:,}" for thread in threads)
    pure = " / ".join(short(value) for value in warm)
    cold = " / ".join(short(value) for value in colds)
    checked = " / ".join(short(value) for value in entries)
    return [
        Sample(
            "reduce_warm",
            warm[-1] / warm[0],
            n=len(threads),
            note=f"round N+1 (an answer with a call and its result): {pure} ms at {sizes} entries,"
            " read from transcript and journal, without the copy of the request's bytes (one"
            " memcpy of them, measured beside each and taken off)",
        ),
        Sample(
            "reduce_cold",
            colds[-1] / rows,
            n=plan.count(5),
            note=f"{cold} ms at {sizes} entries, in a process that knows nothing of the thread:"
            " most of it from what was kept, the entries behind that one by one; the plain read of"
            f" the same {longest.size:,} rows and their outcomes: {short(rows)} ms",
        ),
        Sample(
            "reduce_entries",
            entries[-1] / rows,
            n=plan.count(5),
            note=f"{checked} ms at {sizes} entries, every entry opened and checked",
        ),
        Sample(
            "compaction",
            compacted,
            note=f"PrepareRequest that finds {longest.size:,} entries too long for its window: all"
            " of them read, a summary written and committed, the request made",
        ),
    ]


class _Thread:
    """A thread that only transcript, journal and context know."""

    def __init__(self, system: Embedded, size: int) -> None:
        kernel = system.kernel
        self.size = size
        self._databases = kernel.databases
        transcript, journal = kernel.channel("transcript"), kernel.channel("journal")
        self._transcript = transcript_pb2_grpc.TranscriptServiceStub(transcript)
        self._journal = journal_pb2_grpc.JournalServiceStub(journal)
        self._context = context_pb2_grpc.ContextServiceStub(kernel.channel("context"))
        self._history = History(
            self._transcript,
            self._journal,
            artifacts_pb2_grpc.ArtifactServiceStub(kernel.channel("files")),
            Prefixes(kernel.databases["context"], kernel.ring),
        )
        name = f"reduce{size}"
        self._key = ("wrkspc_bench", f"sesn_{name}", f"sthr_{name}")
        workspace, session, thread = self._key
        self._ref = ThreadRef(workspace_id=workspace, session_id=session, thread_id=thread)
        self._fence = Fence(thread=self._ref, epoch=1)
        self._head = Head()
        self._rounds = 0

    async def fill(self) -> None:
        """Writes the history: a turn is an input and so many rounds."""
        while self._head.seq + 2 <= self.size:
            if self._rounds % _ROUNDS_OF_TURN == 0:
                await self._append(transcript_pb2.TRANSCRIPT_ENTRY_KIND_INPUT, blocks=[_text("go")])
            await self.round()

    async def round(self) -> None:
        """One answer with a call, and its result."""
        number = self._rounds
        self._rounds += 1
        operation = f"op_{self._head.seq}"
        use = b'{"type":"tool_use","id":"toolu_%d","name":"look","input":{"n":%d}}'
        await self._append(
            transcript_pb2.TRANSCRIPT_ENTRY_KIND_ANSWER,
            blocks=[_text(f"I look at {number}."), use % (number, number)],
            envelope=b'{"stop_reason":"tool_use"}',
            mappings=[
                ToolCallMapping(
                    block_index=1,
                    provider_tool_use_id=f"toolu_{number}",
                    operation_id=operation,
                    event_id=f"sevt_{number}",
                )
            ],
        )
        done = await self._journal.CompleteClientCalls(self._answers(operation, number))
        reference = transcript_pb2.ResultReference(
            operation_id=operation,
            block_index=1,
            projection_digest=done.operations[0].projection.digest,
        )
        await self._append(transcript_pb2.TRANSCRIPT_ENTRY_KIND_RESULTS, results=[reference])

    def _answers(self, operation: str, number: int) -> journal_pb2.CompleteClientCallsRequest:
        content = _RESULT % (b"%d " % number + b"r" * _RESULT_BYTES)
        answer = journal_pb2.ClientAnswer(
            operation_id=operation, outcome=journal_pb2.Outcome(content=content)
        )
        scope = journal_pb2.RoundScope(
            turn_id=self._turn, round=number, attempt=Attempt(epoch=1, number=1)
        )
        return journal_pb2.CompleteClientCallsRequest(
            fence=self._fence, scope=scope, answers=[answer]
        )

    async def from_entries(self, times: int) -> float:
        """Milliseconds from the entries alone to the request."""

        async def once() -> None:
            warm = await self._history.past(self._ref, self._head, NO_LOSSES)
            warm.request(_HEAD, request_tail(stream=True))

        return await _median_ms(once, times)

    async def keep(self) -> None:
        """A request is made, as one is at every round: so the history is kept."""
        await self._context.PrepareRequest(self._request(_WIDE_WINDOW_TOKENS))
        keeping = [one for one in asyncio.all_tasks() if one.get_name() == "context-prefix"]
        await asyncio.gather(*keeping)

    async def cold(self, times: int) -> float:
        """Milliseconds from nothing in memory to the request."""

        async def once() -> None:
            warm = await self._history.current(self._ref, self._head, None, NO_LOSSES)
            warm.request(_HEAD, request_tail(stream=True))

        return await _median_ms(once, times)

    async def warm(self, times: int) -> float:
        """Milliseconds of one round more, without the copy of the request."""
        warm = await self._history.past(self._ref, self._head, NO_LOSSES)
        body, _ = warm.request(_HEAD, request_tail(stream=True))
        taken: list[float] = []
        for _ in range(times):
            del body
            await self.round()
            began = time.perf_counter()
            body = await self._one_more(warm)
            between = time.perf_counter()
            copy = bytearray(body)
            ended = time.perf_counter()
            del copy
            taken.append((between - began) - (ended - between))
        return median(taken) * 1e3

    async def _one_more(self, warm: Warm) -> bytes:
        found = await self._history.current(self._ref, self._head, warm, NO_LOSSES)
        if found is not warm:
            raise ValueError("the history was read again from its beginning")
        return warm.request(_HEAD, request_tail(stream=True))[0]

    async def rows(self, times: int) -> float:
        """Milliseconds of reading the same rows, and nothing done with them."""

        async def once() -> None:
            for service, query in _ROWS.items():
                await self._databases[service].fetch(query, *self._key)

        return await _median_ms(once, times)

    async def compacted(self) -> float:
        """Seconds of the request that needs a summary first."""
        window = _SMALL_WINDOW_TOKENS * self.size // _SIZES[-1]
        request = self._request(window)
        began = time.perf_counter()
        response = await self._context.PrepareRequest(request)
        taken = time.perf_counter() - began
        if not response.prepared.snapshot.checkpoint_id:
            raise ValueError("nothing was summarized")
        return taken

    def _request(self, window_tokens: int) -> context_pb2.PrepareRequestRequest:
        profile = CapabilityProfile(
            id="offline", version=1, adapter="messages", window_tokens=window_tokens
        )
        return context_pb2.PrepareRequestRequest(
            fence=self._fence,
            turn_id=self._turn,
            round=self._rounds,
            attempt=Attempt(epoch=1, number=1),
            transcript_head=self._head,
            runtime=runtime_pb2.SessionRuntime(model="offline", profile=profile),
            stream=True,
        )

    @property
    def _turn(self) -> str:
        return f"turn_{self._rounds // _ROUNDS_OF_TURN}"

    async def _append(
        self, kind: "transcript_pb2.TranscriptEntryKind.ValueType", **content: object
    ) -> None:
        request = transcript_pb2.AppendEntryRequest(
            fence=self._fence,
            expected_head=self._head,
            entry_id=f"tent_{self._head.seq + 1}",
            kind=kind,
            turn_id=self._turn,
            content=transcript_pb2.EntryContent(**content),  # pyright: ignore[reportArgumentType]
        )
        if kind == transcript_pb2.TRANSCRIPT_ENTRY_KIND_ANSWER:
            request.attempt.CopyFrom(Attempt(epoch=1, number=1))
        self._head = (await self._transcript.AppendEntry(request)).head


_ROWS = {
    "transcript": "SELECT seq, entry_id, kind, turn_id, round, attempt_epoch, attempt_number,"
    " epoch, content, commitment, digest FROM transcript.entries"
    " WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 ORDER BY seq",
    "journal": "SELECT operation_id, projection FROM journal.outcomes"
    " WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3",
}


async def _median_ms(work: Callable[[], Awaitable[None]], times: int) -> float:
    taken: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        await work()
        taken.append(time.perf_counter() - began)
    return median(taken) * 1e3


def _text(value: str) -> bytes:
    return b'{"type":"text","text":"%b"}' % value.encode()
