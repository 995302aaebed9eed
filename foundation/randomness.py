"""Random bytes for ids and salts: the kernel is asked for many at once, because each question costs
as much as what is done with the answer.

Not for nonces of a cipher: a block that is held in memory comes back when a machine is restored
from a snapshot.
"""

import os
import threading

_BLOCK_BYTES = 4096


class _Blocks:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._block = b""
        self._used = 0

    def take(self, count: int) -> bytes:
        with self._lock:
            start, end = self._used, self._used + count
            if end > len(self._block):
                self._block, start, end = os.urandom(_BLOCK_BYTES), 0, count
            self._used = end
            return self._block[start:end]

    def forked(self) -> None:
        """A fork must not repeat its parent's bytes; another thread may have held the lock."""
        self.__init__()


_blocks = _Blocks()
os.register_at_fork(after_in_child=_blocks.forked)

take = _blocks.take
"""So many random bytes, at most 4096."""
