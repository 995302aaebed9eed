"""Repetitions without a key: when they get the first answer, and when they are new input.

Two equal messages can both be meant. A repetition by an SDK is answered with the first answer only
if we saw that nobody could have read it: the first client was gone before the answer was written.
What is kept for that is bounded in number, bytes and time.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gateway.answers import Answer
from gateway.exchange import Exchange

RETRY_COUNT = "x-stainless-retry-count"
SECONDS = 10.0
"""How long an answer that nobody read waits for its repetition."""

_KEPT_MAX = 256
_KEPT_BYTES_MAX = 8 * 2**20

Work = Callable[[], Awaitable[Answer]]


class _Attempt:
    """One POST: what it asks, and who waits for its answer."""

    __slots__ = ("body", "exchange", "waiting")

    def __init__(self, exchange: Exchange, body: bytes) -> None:
        self.exchange = exchange
        self.body = body
        self.waiting: list[asyncio.Future[Answer | None]] = []

    def equals(self, exchange: Exchange, body: bytes) -> bool:
        own = self.exchange
        return (
            self.body == body
            and own.target == exchange.target
            and own.credential == exchange.credential
        )

    def tell(self, answer: Answer | None) -> None:
        for one in self.waiting:
            if not one.done():
                one.set_result(answer)


@dataclass(frozen=True, eq=False, slots=True)
class _Unread:
    attempt: _Attempt
    answer: Answer
    until: float

    @property
    def size(self) -> int:
        return len(self.attempt.body) + len(self.answer.body)


class Retries:
    """The POST calls of one gateway that run, and the answers that nobody read."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._running: set[_Attempt] = set()
        self._unread: deque[_Unread] = deque()
        self._bytes = 0

    async def answer(self, exchange: Exchange, body: bytes, work: Work) -> Answer:
        """The answer of `work`, or of an equal call before whose client left."""
        if self._unread:
            self._expire()
        if exchange.header(RETRY_COUNT) not in ("", "0"):
            found = await self._first(exchange, body)
            if found is not None:
                self._keep_if_unread(_Attempt(exchange, body), found)
                return found
        attempt = _Attempt(exchange, body)
        self._running.add(attempt)
        try:
            answer = await work()
        except BaseException:
            attempt.tell(None)
            raise
        finally:
            self._running.discard(attempt)
        attempt.tell(answer)
        if not attempt.waiting:
            self._keep_if_unread(attempt, answer)
        return answer

    async def _first(self, exchange: Exchange, body: bytes) -> Answer | None:
        for unread in self._unread:
            if unread.attempt.equals(exchange, body):
                self._unread.remove(unread)
                self._bytes -= unread.size
                return unread.answer
        for attempt in self._running:
            if not attempt.waiting and attempt.equals(exchange, body) and attempt.exchange.left():
                one = asyncio.get_running_loop().create_future()
                attempt.waiting.append(one)
                return await one
        return None

    def _keep_if_unread(self, attempt: _Attempt, answer: Answer) -> None:
        if not attempt.exchange.left():
            return
        kept = _Unread(attempt, answer, self._clock() + SECONDS)
        self._unread.append(kept)
        self._bytes += kept.size
        while len(self._unread) > _KEPT_MAX or self._bytes > _KEPT_BYTES_MAX:
            self._drop()

    def _expire(self) -> None:
        now = self._clock()
        while self._unread and self._unread[0].until < now:
            self._drop()

    def _drop(self) -> None:
        self._bytes -= self._unread.popleft().size
