"""Plays a schedule: a new session, runners that compete for it, faults, then a quiet end."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.laws.doubled import checks
from tests.laws.doubled.client import Client
from tests.laws.doubled.evidence import gather
from tests.laws.doubled.network import Net, Parcel, Where
from tests.laws.doubled.provider import Provider
from tests.laws.doubled.public_log import PublicLog
from tests.laws.doubled.runners import Runner, TaskBook
from tests.laws.doubled.schedule import FATES, THEMES, Fault, Schedule
from tests.laws.doubled.stage import Stage
from tests.laws.doubled.timekeeper import Timekeeper

_LOSSES_BORNE = 5
"""So many claims in a row may be lost before a turn is taken out (quarantine)."""
_MESSAGES_MAX = 4
_INTERRUPTS_MAX = 2
_SENT_MAX = 3
_QUIET_BEFORE_MORE = 5
_STEPS_MAX = 6000
_QUIET_MAX = 300

_EXPIRE = """
UPDATE ledger.threads SET lease_expires_at = clock_timestamp() - interval '1 second'
WHERE thread_id = $1 AND lease_stream IS NOT NULL
RETURNING thread_id
"""
_GIVE_UP = """
UPDATE ledger.threads SET claimable_at = NULL, lease_stream = NULL WHERE thread_id = $1
RETURNING thread_id
"""
# 6 is DONE, 4 SETTLING, 7 QUARANTINED.
_STATE = """
SELECT t.lease_stream IS NOT NULL AS held,
    (SELECT array_agg(state ORDER BY input_position) FROM ledger.turns
     WHERE thread_id = t.thread_id AND state <> 6) AS states
FROM ledger.threads t WHERE t.thread_id = $1
"""

_AMBUSHED = "ANSWER|RESULTS|AppendRound|CommitTurn"

Option = Callable[[], None]


@dataclass(frozen=True)
class Played:
    """How an example went."""

    wrong: list[str]
    trace: list[str]
    log: PublicLog
    """Empty unless the example came to its end."""


async def play(stage: Stage, schedule: Schedule) -> Played:
    """Play a schedule on a new session; everything that was wrong."""
    machine = Machine(stage, schedule)
    try:
        await machine.begin()
        await machine.chaos()
        await machine.drain()
        if not machine.net.wrong:
            await machine.check()
    finally:
        await machine.end()
    return Played(machine.net.wrong, machine.net.trace, machine.log)


class Machine:
    """One example while it is played."""

    def __init__(self, stage: Stage, schedule: Schedule) -> None:
        self.stage = stage
        self.net = stage.net = Net()
        self.steps = 0
        self.log = PublicLog([], [])
        self._schedule = schedule
        self._theme = THEMES[schedule.theme]
        self._random = Random(schedule.seed)
        self._loop = stage.loop
        self._book = TaskBook()
        theme = self._theme
        self.client = Client(stage, self.net, self._random, message_bytes=theme.message_bytes)
        self.provider = Provider(
            self.net, self._random, theme.answers, bytes_max=theme.request_bytes_max
        )
        self._runners: list[Runner] = []
        self._started = 0
        self._current = ""
        self._paused: dict[str, int] = {}
        self._fates: list[tuple[str, str]] = []
        """What becomes of the next calls of these patterns."""
        self._after: list[tuple[Parcel, str]] = []
        self._ambush: Fault | None = None
        self._losses = 0
        self._gone: list[Runner] = []
        self._time = Timekeeper(stage, self.client.thread)
        self._drained = False

    async def begin(self) -> None:
        """Runners attach, and the session begins."""
        stage = self.stage
        stage.executions.clear()
        self._loop.set_task_factory(self._book)  # type: ignore[arg-type]
        for _ in range(self._schedule.runners):
            self._start_runner()
        await self._loop.idle()
        for line in [line for runner in self._runners for line in runner.lines]:
            line.push()
        await self._loop.idle()
        await self.client.open()

    async def check(self) -> None:
        """What is left must fit together."""
        found = await gather(self.stage, self.client.thread)
        self.log = found.log
        executions = self.stage.executions
        may_be_lost = self._theme.losses_max > _LOSSES_BORNE
        case = checks.Case(found, self.client, self.provider, self.net, executions, may_be_lost)
        for complaint in case.complaints():
            self.net.blame(complaint)

    async def end(self) -> None:
        """Nothing of this example goes on."""
        for runner in (*self._runners, *self._gone):
            runner.kill()
        await self.stage.tools.stop()
        for task in tuple(self.net.serving):
            task.cancel()
        await asyncio.gather(*self.net.serving, return_exceptions=True)
        for runner in (*self._runners, *self._gone):
            await runner.gone()
        self._loop.set_task_factory(None)
        if self.client.thread.thread_id:
            await self.stage.change(_GIVE_UP, self.client.thread.thread_id)

    async def chaos(self) -> None:
        """Faults at their places."""
        for fault in self._schedule.faults:
            for _ in range(fault.after):
                if not await self._step():
                    break
            await self._loop.idle()
            await self._apply(fault)

    async def drain(self) -> None:
        """No more faults; everything arrives, everything is answered, until all turns are over."""
        self.net.log("--- drain")
        self._drained = True
        self._paused.clear()
        self._fates.clear()
        self._after.clear()
        self._ambush = None
        quiet = 0
        sent = 0
        while self.steps < _STEPS_MAX and quiet < _QUIET_MAX:
            await self._loop.idle()
            if await self._progress():
                quiet = 0
                continue
            states = await self._unfinished()
            if states is None:
                return
            if states[:1] in ([4], [7]) and sent < _SENT_MAX and quiet >= _QUIET_BEFORE_MORE:
                # Publicly over: it is settled with the next input.
                sent, quiet = sent + 1, 0
                await self.client.message()
                continue
            quiet += 1
            await self._time.tick()
        self.net.blame(f"bricked: turns {await self._unfinished()} after {self.steps} steps")

    async def _progress(self) -> bool:
        """One thing that can happen without time; whether there was one."""
        self.steps += 1
        if self._random.random() < 0.1 and await self.client.answer():
            return True
        options = [option for found in self._options().values() for option in found]
        if options:
            self._random.choice(options)()
            return True
        if self.net.late:
            self.net.arrive(self._random.choice(self.net.late))
            return True
        return await self.client.answer()

    async def _unfinished(self) -> list[int] | None:
        """States of the turns that are not over; None when nothing is left to do."""
        db = await self.stage.kernel.database("ledger")
        row = await db.fetchrow(_STATE, self.client.thread.thread_id)
        assert row is not None
        if row["states"] or row["held"]:
            return list(row["states"] or ())
        return None

    async def _step(self) -> bool:
        """One thing happens, mostly to the actor of the one before; False when all is quiet."""
        await self._loop.idle()
        self.steps += 1
        random = self._random
        await self._happen_after()
        if self._ambush is not None:
            await self._ambush_write(self._ambush)
        if self.net.late and random.random() < 0.12:
            self.net.arrive(random.choice(self.net.late))
            return True
        options = self._options()
        if not options or random.random() < 0.08:
            return await self._time.tick() or bool(options)
        if self._current not in options or random.random() < 0.25:
            self._current = random.choice(sorted(options))
        random.choice(options[self._current])()
        return True

    def _options(self) -> dict[str, list[Option]]:
        """What can happen now, by actor."""
        found: dict[str, list[Option]] = {}
        for parcel in self.net.parcels:
            if self._is_paused(parcel.actor):
                continue
            if parcel.where is Where.WAITING:
                found.setdefault(parcel.actor, []).append(self._delivery(parcel))
            elif parcel.where is Where.ANSWERED and (self._drained or self._random.random() < 0.2):
                found.setdefault(parcel.actor, []).append(lambda p=parcel: self.net.answer(p))
        for runner in self._runners:
            for line in runner.lines:
                if line.inbox and not self._is_paused(runner.name):
                    found.setdefault(runner.name, []).append(line.push)
        return found

    def _is_paused(self, actor: str) -> bool:
        return self._paused.get(actor, 0) > self.steps

    def _delivery(self, parcel: Parcel) -> Option:
        def deliver() -> None:
            match self._fate(parcel):
                case "lost request" | "late request" as fate:
                    self.net.drop(parcel, late=fate == "late request")
                    return
                case "lost answer":
                    parcel.lose = True
                case "held answer":
                    parcel.hold = True
                case "twice":
                    parcel.twice = True
                case "die after" | "stall after" as fate:
                    parcel.hold = True
                    self._after.append((parcel, fate))
                case _:
                    pass
            self.net.deliver(parcel)

        return deliver

    def _fate(self, parcel: Parcel) -> str:
        """What becomes of a delivery: the first fate that waits for such a call."""
        if parcel.request is None:
            # What goes to the provider, or a tool's effect, is no request of ours.
            return ""
        for place, (fate, pattern) in enumerate(self._fates):
            if re.search(pattern, parcel.label):
                del self._fates[place]
                return fate
        return ""

    async def _happen_after(self) -> None:
        """The caller of an answered call dies, or is stopped for a while."""
        for parcel, fate in [one for one in self._after if one[0].where is Where.ANSWERED]:
            self._after.remove((parcel, fate))
            runner = next((r for r in self._runners if r.name == parcel.actor), None)
            if runner is None or not self._lose():
                self.net.answer(parcel)
            elif fate == "die after":
                self._kill(runner)
            else:
                self._pause(runner, 12)
                await self._expire()

    async def _ambush_write(self, fault: Fault) -> None:
        """An interrupt comes while a write is under way, and the write is late; its owner may not
        live to repeat it."""
        for parcel in self.net.parcels:
            if parcel.where is not Where.WAITING or not re.search(_AMBUSHED, parcel.label):
                continue
            self._ambush = None
            await self._client("interrupt")
            await self._loop.idle()
            runner = next((r for r in self._runners if r.name == parcel.actor), None)
            for line in runner.lines if runner is not None else ():
                while line.inbox:
                    line.push()
            await self._loop.idle()
            if parcel in self.net.parcels and parcel.where is Where.WAITING:
                self.net.drop(parcel, late=True)
            if runner is not None and fault.detail % 2 and self._lose():
                self._kill(runner)
            return

    async def _apply(self, fault: Fault) -> None:
        """A fault happens."""
        match fault.kind:
            case kind if kind in FATES:
                self._fates.append((kind, fault.call))
            case "ambush":
                self._ambush = fault
            case "pause":
                self._pause(self._owner(), fault.detail)
            case "stall" if self._lose():
                self._pause(self._owner(), fault.detail)
                await self._expire()
            case "expire" if self._lose():
                await self._expire()
            case "kill" if self._lose():
                self._kill(self._owner())
            case "drain" if self._lose():
                self._drain_runner(self._owner())
            case "cut" if self._lose():
                self._cut(self._owner())
            case "tools die":
                self.net.log("the tools die")
                await self.stage.tools.stop()
            case "long wait":
                await self._time.wait(20.0 + 10 * fault.detail)
            case _:
                await self._client(fault.kind)

    async def _client(self, kind: str) -> None:
        match kind:
            case "message" if len(self.client.messages) < _MESSAGES_MAX:
                await self.client.message()
            case "answer":
                await self.client.answer()
            case "again":
                await self.client.answer_again()
            case "interrupt" if self.client.interrupts < _INTERRUPTS_MAX:
                await self.client.interrupt()
            case _:
                pass

    def _owner(self) -> Runner:
        """The runner that did something last, or one that has something to do."""
        acting = {parcel.actor for parcel in self.net.parcels} | {self._current}
        candidates = [runner for runner in self._runners if runner.name in acting]
        return self._random.choice(candidates or self._runners)

    def _lose(self) -> bool:
        """Whether one more claim may be lost."""
        self._losses += 1
        return self._losses <= self._theme.losses_max

    def _pause(self, runner: Runner, detail: int) -> None:
        self.net.log(runner.name, "pauses")
        self._paused[runner.name] = self.steps + 6 + 6 * detail

    async def _expire(self) -> None:
        if await self.stage.change(_EXPIRE, self.client.thread.thread_id):
            self.net.log("the lease expires")
            await self.stage.dispatcher.rescan()

    def _cut(self, runner: Runner) -> None:
        self.net.log(runner.name, "loses its stream")
        runner.lines[-1].cut()

    def _kill(self, runner: Runner) -> None:
        self.net.log(runner.name, "is killed")
        runner.kill()
        self._runners.remove(runner)
        self._gone.append(runner)
        self._start_runner()

    def _drain_runner(self, runner: Runner) -> None:
        self.net.log(runner.name, "drains")
        runner.drain()
        self._runners.remove(runner)
        self._gone.append(runner)
        self._start_runner()

    def _start_runner(self) -> None:
        name = f"R{self._started}"
        self._started += 1
        self._runners.append(Runner(name, self.stage.inner, self.net, self.provider, self._book))
