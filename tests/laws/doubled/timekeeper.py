"""Time of a schedule: it passes for waiting tasks, and for what is stored, in the same steps."""

from counterfoil.types.v1 import reference_pb2

from tests.laws.doubled.stage import Stage

_OWED_MAX_SECONDS = 0.5
_RESCAN_SECONDS = 1.0

_MOVE_LEDGER = """
UPDATE ledger.threads SET claimable_at = claimable_at - $2 * interval '1 second'
WHERE thread_id = $1
RETURNING thread_id
"""
_MOVE_TURNS = """
UPDATE ledger.turns SET not_before = not_before - $2 * interval '1 second'
WHERE thread_id = $1 AND not_before IS NOT NULL
"""
_MOVE_JOURNAL = """
UPDATE journal.operations SET
    started_at = started_at - $2 * interval '1 second',
    deadline_at = deadline_at - $2 * interval '1 second'
WHERE thread_id = $1 AND deadline_at IS NOT NULL
"""


class Timekeeper:
    """Moves the time of one session's thread."""

    def __init__(self, stage: Stage, thread: reference_pb2.ThreadRef) -> None:
        self._stage = stage
        self._thread = thread
        self._owed = 0.0
        self._since_rescan = 0.0

    async def tick(self) -> bool:
        """Time passes until something is due, a second at most; False when nothing was."""
        seconds = self._stage.loop.until_timer()
        due = seconds is not None and seconds < 1
        await self.wait(seconds + 0.001 if seconds is not None and due else 1.0)
        return due

    async def wait(self, seconds: float) -> None:
        """So much time passes; the ledger looks for what was missed once a second."""
        self._stage.loop.advance(seconds)
        self._owed += seconds
        self._since_rescan += seconds
        if self._owed >= _OWED_MAX_SECONDS:
            await self._move()
        if self._since_rescan >= _RESCAN_SECONDS:
            self._since_rescan = 0.0
            await self._stage.dispatcher.rescan()

    async def _move(self) -> None:
        """Stored times come nearer by what passed."""
        owed, self._owed = self._owed, 0.0
        for sql in (_MOVE_LEDGER, _MOVE_TURNS, _MOVE_JOURNAL):
            await self._stage.change(sql, self._thread.thread_id, owed)
