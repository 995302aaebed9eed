"""Pure functions with bounds that hold: in processes of their own, which end with what takes too
long. A thread cannot be ended, and one that matches a pattern lets no other thread run."""

import asyncio
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar, cast

from services.journal.worker import HEAD, LENGTH

Result = TypeVar("Result")

CPU_S = 2.0
"""What one computation may take of a processor."""
WALL_S = 8.0
"""When it is given up, waiting for a process included: before those who asked repeat themselves."""

_PROCESSES_MAX = 4
_TRIES = 2
"""A process may be ended by somebody else; what is computed is pure."""

_ROOT = Path(__file__).resolve().parents[2]
_OURS = "COUNTERFOIL_"
"""Variables that no computation needs, with keys among them."""


class TookTooLong(Exception):
    """A computation was ended, or never came to its turn."""


class Broke(Exception):
    """A computation has no result: it raised, or its process died or could not be started."""


class Workers:
    """A few processes, each started when all others are busy."""

    def __init__(self, cpu_s: float = CPU_S, wall_s: float = WALL_S) -> None:
        self._cpu_s = cpu_s
        self._wall_s = wall_s
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._room = asyncio.Semaphore(_PROCESSES_MAX)
        # Twice as many: one that was ended takes a moment to be gone.
        self._threads = ThreadPoolExecutor(2 * _PROCESSES_MAX, thread_name_prefix="worker")

    @property
    def pids(self) -> list[int]:
        """The processes that there are."""
        return [worker.pid for worker in (*self._idle, *self._busy)]

    async def run(self, work: Callable[[], Result]) -> Result:
        """What a picklable call returns. Raises TookTooLong and Broke."""
        try:
            async with asyncio.timeout(self._wall_s), self._room:
                for _ in range(_TRIES):
                    answer = await self._ask(work)
                    if answer is not None:
                        break
                else:
                    raise Broke
        except TimeoutError:
            raise TookTooLong from None
        if not answer:
            raise Broke
        return cast("Result", pickle.loads(answer))

    def close(self) -> None:
        """End the processes; for when nobody asks any more."""
        for worker in (*self._idle, *self._busy):
            self._end(worker)
        self._idle.clear()
        self._busy.clear()
        self._threads.shutdown()

    async def _ask(self, work: Callable[[], object]) -> bytes | None:
        """The answer; None when the process died of something else than the question's length."""
        try:
            worker = self._take()
        except OSError:
            raise Broke from None
        self._busy.add(worker)
        answer = None
        try:
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(self._threads, worker.ask, work, self._cpu_s)
        finally:
            self._busy.discard(worker)
            if answer is None:
                self._end(worker)
            else:
                self._idle.append(worker)
        return answer

    def _take(self) -> "_Worker":
        while self._idle:
            worker = self._idle.pop()
            if worker.is_alive:
                return worker
            self._end(worker)
        return _Worker()

    def _end(self, worker: "_Worker") -> None:
        worker.kill()
        self._threads.submit(worker.reap)


class _Worker:
    """A process, and the pipes to it."""

    def __init__(self) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(_OURS)}
        # From the folder of this program, so that no other `services` is found first.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "services.journal.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            env=environment,
            start_new_session=True,  # Ctrl-C is for who asks
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._asked, self._answered = self._process.stdin, self._process.stdout

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, work: Callable[[], object], seconds: float) -> bytes | None:
        """The answer, None from a process that died. Raises TookTooLong."""
        question = pickle.dumps(work)
        try:
            self._asked.write(HEAD.pack(seconds, len(question)))
            self._asked.write(question)
            self._asked.flush()
            head = self._answered.read(LENGTH.size)
            if len(head) == LENGTH.size:
                (length,) = LENGTH.unpack(head)
                answer = self._answered.read(length)
                if len(answer) == length:
                    return answer
        except (OSError, ValueError):  # ValueError: it was reaped meanwhile.
            pass
        if self._process.wait() == -signal.SIGPROF:
            raise TookTooLong
        return None

    def kill(self) -> None:
        self._process.kill()

    def reap(self) -> None:
        self._process.wait()
        for pipe in (self._asked, self._answered):
            with suppress(OSError):
                pipe.close()
