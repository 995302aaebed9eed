"""A process that computes what it is asked, one question after the other, within bounds that the
kernel keeps: it ends the process that takes too much of a processor, and refuses it more memory.

Questions and answers are pickles with their length in front: both sides are the same program. The
end of its input ends the process, so it outlives nobody who could ask.
"""

import pickle
import resource
import signal
import struct
import sys
from collections.abc import Callable
from typing import cast

HEAD = struct.Struct(">dQ")
"""Before a question: seconds of a processor that it may take, and its length in bytes."""
LENGTH = struct.Struct(">Q")
"""Before an answer; 0 stands for one that could not be computed."""

MEMORY_BYTES_MAX = 1024**3


def main() -> None:
    """Answer until nobody asks any more."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, whatever it is doing
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # nobody waits for the answer any more
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or hard > MEMORY_BYTES_MAX:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, hard))
    asked, answered = sys.stdin.buffer, sys.stdout.buffer
    while len(head := asked.read(HEAD.size)) == HEAD.size:
        seconds, length = HEAD.unpack(head)
        # Imports what is asked for, which the first question shall not pay.
        work = cast("Callable[[], object]", pickle.loads(asked.read(length)))
        signal.setitimer(signal.ITIMER_PROF, seconds)
        answer = _answer(work)
        signal.setitimer(signal.ITIMER_PROF, 0)
        answered.write(LENGTH.pack(len(answer)))
        answered.write(answer)
        answered.flush()


def _answer(work: Callable[[], object]) -> bytes:
    try:
        return pickle.dumps(work())
    except Exception:  # Nobody must learn more of it: an error's text may quote an outcome.
        return b""


if __name__ == "__main__":
    main()
