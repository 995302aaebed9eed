"""How a long-running process treats its memory."""

import ctypes
import gc

# Parameters of glibc's mallopt.
_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3
_FREE_BYTES_KEPT = 64 * 2**20
_HEAP_BLOCK_BYTES_MAX = 32 * 2**20


def settle() -> None:
    """For a process that has started.

    What it holds now, it holds until its end: the garbage collector need not look at it again,
    which would stop every turn for a tenth of a second, and looks at the rest less often. What it
    frees, it soon needs again: every request is as large as its whole history, and memory that was
    given back costs ten times as much to get, page by page, as a copy into memory that was kept.
    The little garbage of the start is kept as well: looking for it takes that tenth of a second
    just when turns wait to go on.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # other C libraries have no such setting
        mallopt(_TRIM_THRESHOLD, _FREE_BYTES_KEPT)
        mallopt(_MMAP_THRESHOLD, _HEAP_BLOCK_BYTES_MAX)
