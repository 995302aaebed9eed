"""The soak itself: set up, load and faults side by side, then the proof."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bench.chat import Place
from bench.stats import percentile
from tests.soak.conversations import Conversation, Stuck
from tests.soak.faults import Memory, deaths
from tests.soak.proof import Promised, grown, wrong_answers, wrong_inputs, wrong_stream
from tests.soak.readers import Reader
from tests.soak.wire import Caller, Rejected
from tests.support.chat import Chat
from tests.support.invariants import check_chains, check_history, check_operations
from tests.support.model import Model
from tests.support.postgres import SessionPostgres
from tests.support.system import System, system_of
from tests.support.zygote import Zygote

_AT_ONCE = 16
_STREAMS_PER_SESSION = 2
_SAY_SECONDS = 5.0
_MEMORY_SAMPLES = 200
_CATCH_UP_SECONDS_MAX = 60.0

Say = Callable[[str], None]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Plan:
    """The size of a run."""

    streams: int = 1_000
    writers: int = 64
    seconds: float = 120.0
    chains: int = 25
    """How many sessions have their hash chains recomputed."""


@dataclass
class Outcome:
    """What came of it; `problems` is empty when everything held."""

    problems: list[str] = field(default_factory=list[str])
    turns: list[float] = field(default_factory=list[float])
    inputs: int = 0
    events: int = 0
    reconnections: int = 0
    repeats: int = 0
    memory: list[str] = field(default_factory=list[str])

    def summary(self) -> str:
        """For people."""
        times = sorted(self.turns)
        lines = [
            f"{len(times)} exchanges ({self.inputs} inputs, {self.events} events), each p50"
            f" {percentile(times, 50):.2f} s, p99 {percentile(times, 99):.2f} s",
            f"{self.reconnections} reconnections with Last-Event-ID,"
            f" {self.repeats} requests repeated under their Idempotency-Key",
            *self.memory,
        ]
        lines += [f"WRONG: {problem}" for problem in self.problems[:40]]
        return "\n".join([*lines, f"{len(self.problems)} problems"])


@dataclass
class _Soak:
    plan: Plan
    system: System
    postgres: SessionPostgres
    say: Say
    outcome: Outcome = field(default_factory=Outcome)
    conversations: list[Conversation] = field(default_factory=list[Conversation])
    readers: list[Reader] = field(default_factory=list[Reader])

    async def run(self) -> None:
        """All of it."""
        memory = Memory()
        await self._open()
        async with _beside(*(reader.run() for reader in self.readers)):
            await asyncio.gather(*(reader.open.wait() for reader in self.readers))
            self.say(f"{len(self.readers)} streams of {len(self.conversations)} sessions are open")
            every = self.plan.seconds / _MEMORY_SAMPLES
            async with _beside(memory.watch(self.system, every), self._progress()):
                await self._load()
            self.say("proving")
            await self._prove()
        for (name, _), sizes in memory.sizes.items():
            line = f"{name}: {sizes[0] / 1e6:.0f} MB at first, {sizes[-1] / 1e6:.0f} MB at last"
            self.outcome.memory.append(f"{line}, {max(sizes) / 1e6:.0f} MB at most")
            wrong = grown(sizes)
            self.outcome.problems += [f"{name} {wrong}"] if wrong else []

    async def _open(self) -> None:
        place = await Place.make(self.system.rest_url)
        body = {"agent": place.agent, "environment_id": place.environment}

        async def make() -> None:
            async with _caller(place.url) as caller:
                session: str = (await caller.post("/v1/sessions", body))["id"]
            talk = Conversation(session)
            self.conversations.append(talk)
            for _ in range(_STREAMS_PER_SESSION):
                self.readers.append(Reader(place.url, session, talk.came))

        sessions = max(self.plan.streams // _STREAMS_PER_SESSION, self.plan.writers)
        await _each(range(sessions), lambda _: make())

    async def _load(self) -> None:
        until = time.monotonic() + self.plan.seconds
        killing = deaths(self.system, self.postgres, self.plan.seconds, self.say)
        writers = (self._write(number, until) for number in range(self.plan.writers))
        await asyncio.gather(killing, *writers)

    async def _write(self, number: int, until: float) -> None:
        own = self.conversations[number :: self.plan.writers]
        async with _caller(self.system.rest_url) as caller:
            turn = 0
            while (began := time.monotonic()) < until:
                try:
                    await own[turn % len(own)].turn(caller)
                except (Stuck, Rejected) as error:
                    self.outcome.problems.append(str(error))
                    break
                self.outcome.turns.append(time.monotonic() - began)
                turn += 1
            self.outcome.repeats += caller.repeats

    async def _progress(self) -> None:
        began, before = time.monotonic(), 0
        while True:
            await asyncio.sleep(_SAY_SECONDS)
            done = len(self.outcome.turns)
            open_ = sum(reader.open.is_set() for reader in self.readers)
            self.say(
                f"{time.monotonic() - began:4.0f} s: {done} exchanges"
                f" ({(done - before) / _SAY_SECONDS:.0f}/s), {open_} of {len(self.readers)}"
                f" streams open, {len(self.outcome.problems)} problems"
            )
            before = done

    async def _prove(self) -> None:
        by_session = {talk.session: list[Reader]() for talk in self.conversations}
        for reader in self.readers:
            by_session[reader.session].append(reader)
            self.outcome.reconnections += reader.openings - 1
            if reader.openings < 2:
                self.outcome.problems.append(f"a stream of {reader.session} was never cut off")
        await _each(self.conversations, lambda talk: self._compare(talk, by_session[talk.session]))
        client = self.system.client()
        used = [talk.session for talk in self.conversations if talk.accepted]
        sample = used[:: max(len(used) // self.plan.chains, 1)]
        chats = [Chat(self.system, session, client) for session in sample]
        await _each(chats, self._verify)
        for id, times in self.system.effects.by_operation().items():
            if times > 1:
                self.outcome.problems.append(f"platform call {id} was executed {times} times")

    async def _compare(self, talk: Conversation, readers: Sequence[Reader]) -> None:
        async with _caller(self.system.rest_url) as caller:
            history = await _history(caller, talk.session)
        promised = Promised(talk.accepted, talk.answers)
        found = [*wrong_inputs(promised, history), *wrong_answers(promised, history)]
        for reader in readers:
            try:
                async with asyncio.timeout(_CATCH_UP_SECONDS_MAX):
                    for last in history[-1:]:
                        await reader.reached(last["id"])
            except TimeoutError:
                found.append(f"a stream never came to the end; its client said {reader.wrong!r}")
            found += wrong_stream(reader.frames, history)
        try:
            if history:
                check_history(history)
        except AssertionError as error:
            found.append(str(error))
        self.outcome.problems += [f"{talk.session}: {problem}" for problem in found]
        self.outcome.inputs += len(talk.accepted)
        self.outcome.events += len(history)

    async def _verify(self, chat: Chat) -> None:
        try:
            await check_operations(chat, await check_chains(chat))
        except AssertionError as error:
            self.outcome.problems.append(f"{chat.id}: its chains or calls do not hold: {error}")


async def soak(
    plan: Plan, zygote: Zygote, model: Model, postgres: SessionPostgres, say: Say
) -> Outcome:
    """Runs it on a split system of its own; PostgreSQL is killed too, so it must be nobody's."""
    async with system_of(
        "split", zygote, model, postgres, COUNTERFOIL_LOG_LEVEL="warning"
    ) as system:
        await system.start()
        run = _Soak(plan, system, postgres, say)
        await run.run()
        return run.outcome


@asynccontextmanager
async def _caller(url: str) -> AsyncGenerator[Caller]:
    caller = Caller(url)
    try:
        yield caller
    finally:
        caller.close()


async def _history(caller: Caller, session: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    more = ""
    while True:
        page = await caller.get(f"/v1/sessions/{session}/events?limit=1000{more}")
        found += page["data"]
        if not page.get("next_page"):
            return found
        more = f"&page={page['next_page']}"


async def _each(items: Sequence[Item], work: Callable[[Item], Coroutine[Any, Any, None]]) -> None:
    """Works on all items, a few at once."""
    left = iter(items)

    async def worker() -> None:
        for item in left:
            await work(item)

    await asyncio.gather(*(worker() for _ in range(_AT_ONCE)))


@asynccontextmanager
async def _beside(*work: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Runs what never ends by itself for as long as the block; what fails, fails the block."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    failed = [one for one in ended if isinstance(one, Exception)]
    if failed:
        raise failed[0]
