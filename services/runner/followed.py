"""Threads of which a runner knows that no call of theirs can end late. Pure.

Only a call that was closed after its start ends late, and only owners close calls. So a runner that
has owned a thread claim by claim, from its first entry on, and closed none that had started, need
not ask the journal.
"""

from collections import OrderedDict

from counterfoil.ledger.v1 import turn_pb2

_THREADS_MAX = 4096


class Followed:
    """Remembers threads by the epoch up to which it is so."""

    def __init__(self, threads_max: int = _THREADS_MAX) -> None:
        self._epochs: OrderedDict[str, int] = OrderedDict()
        self._threads_max = threads_max

    def covers(self, claim: turn_pb2.Claim) -> bool:
        """Whether it is so at the start of a claim: every claim raises the epoch by one, so that
        there was none in between."""
        if claim.takeover:
            return False
        if claim.transcript_head.seq == 0:
            return True
        return self._epochs.get(claim.thread.thread_id) == claim.epoch - 1

    def ended(self, claim: turn_pb2.Claim, *, may_end_late: bool) -> None:
        """A claim ended; whether a call may end late since."""
        thread_id = claim.thread.thread_id
        self._epochs.pop(thread_id, None)
        if not may_end_late:
            self._epochs[thread_id] = claim.epoch
            if len(self._epochs) > self._threads_max:
                self._epochs.popitem(last=False)

    def forget(self) -> None:
        """Another ledger may answer from now on, which counts epochs differently."""
        self._epochs.clear()
