"""Keeping a long-running process's memory in huge pages, where Linux offers them.

A Python process reads objects all over its heap. With pages of 4 KiB the processor has to look up
the address of nearly each; on virtual machines, where every lookup goes through two tables, that
takes up to a third of its time.
"""

import ctypes
import mmap
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path

PAGE_BYTES = 2 * 2**20

SERVER_MIB, SERVICE_MIB = 72, 40
"""What small objects take once a process works: that of everything, and that of one service."""

_LOOK_S = 1.0
_FIRST_CPU_S = 3.0
_AGAIN_CPU_S = 30.0
"""CPU time that the process has used: moving the heap takes a part of a second of it, which one
that is idle or soon over would never get back."""

_SMALL_OBJECT_BYTES_MAX = 512
_ARENA_BYTES = 2**20
"""CPython maps memory for small objects in these; the larger ones come from the C library."""

_HUGEPAGE = 14
_COLLAPSE = 25  # Linux 6.1; older ones refuse it, and move what is marked when they find time
_MAPPINGS = Path("/proc/self/smaps")
_PAGEMAP = Path("/proc/self/pagemap")
_SMALL_BYTES = 4096
_ENTRY_BYTES = 8
_PRESENT = 0x80  # of an entry's last byte
_FILLED_MIN = PAGE_BYTES // _SMALL_BYTES // 8
_ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")

_kept: list[bytes | None] = []
"""One object at least of each piece that was reserved: CPython gives empty ones back."""


def offered() -> bool:
    """Whether the system has huge pages, of the size that is meant here, and allows them."""
    try:
        return mmap.PAGESIZE == _SMALL_BYTES and "[never]" not in _ENABLED.read_text()
    except OSError:
        return False


def reserve(mebibytes: int) -> None:
    """Map so much memory for small objects in one piece. To be called before large imports.

    CPython maps a MiB when it needs one, and Linux puts it wherever one is free: between the
    libraries that are loaded meanwhile. Pieces of that size can never be a huge page, and the first
    ones hold what is used most: code, classes, modules. Memory that was mapped is used before more
    is, as long as a single object in each piece is kept. Moves it into huge pages meanwhile: turns
    would have to wait for that.
    """
    if not offered():
        return
    size = _SMALL_OBJECT_BYTES_MAX - sys.getsizeof(b"")
    objects: list[bytes | None] = [None] * (mebibytes * 2**20 // _SMALL_OBJECT_BYTES_MAX)
    for place in range(len(objects)):
        objects[place] = bytes(size)
    _kept.extend(objects[:: _ARENA_BYTES // _SMALL_OBJECT_BYTES_MAX // 2])
    threading.Thread(target=move, name="huge-pages", daemon=True).start()


def keep() -> None:
    """Move the heap into huge pages once there is work, and later what it grew by. Never raises."""
    if offered():
        threading.Thread(target=_keep, name="huge-pages", daemon=True).start()


def _keep() -> None:
    never, due = threading.Event(), time.process_time() + _FIRST_CPU_S
    while not never.wait(_LOOK_S):
        if time.process_time() >= due:
            move()
            due = time.process_time() + _AGAIN_CPU_S


def move() -> int:
    """Move the heap now; the number of huge pages that this made."""
    try:
        return _move()
    except OSError:
        return 0  # the system hides from the process what it holds


def _move() -> int:
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    with _MAPPINGS.open(errors="replace") as file:
        mappings = file.readlines()
    moved = 0
    with _PAGEMAP.open("rb", buffering=0) as pagemap:
        for start, end in _aligned(heap(mappings)):
            madvise(start, end - start, _HUGEPAGE)
            for page in range(start, end, PAGE_BYTES):
                if _filled(pagemap, page):
                    moved += madvise(page, PAGE_BYTES, _COLLAPSE) == 0
    return moved


def _filled(pagemap: FileIO, address: int) -> bool:
    """Whether an eighth of a huge page is in use: the rest would be taken from the system."""
    pagemap.seek(address // _SMALL_BYTES * _ENTRY_BYTES)
    entries = pagemap.read(PAGE_BYTES // _SMALL_BYTES * _ENTRY_BYTES)
    last = entries[_ENTRY_BYTES - 1 :: _ENTRY_BYTES]
    return sum(byte >= _PRESENT for byte in last) >= _FILLED_MIN


def heap(mappings: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Address and end of each private writable mapping without a file that is not in huge pages
    already, from the lines of `/proc/<pid>/smaps`."""
    found: tuple[int, int] | None = None
    for line in mappings:
        first, *rest = line.split()
        if not first.endswith(":"):
            found = _heap_of(first, *rest)
        elif found and first == "AnonHugePages:":
            huge = int(rest[0]) * 1024
            if huge < sum(end - start for start, end in _aligned([found])):
                yield found


def _heap_of(
    addresses: str, access: str, _offset: str, _device: str, inode: str, *name: str
) -> tuple[int, int] | None:
    """What the first line of a mapping says, if it is of the heap."""
    if access != "rw-p" or inode != "0" or name not in ((), ("[heap]",)):
        return None
    start, end = addresses.split("-")
    return int(start, 16), int(end, 16)


def _aligned(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for start, end in ranges:
        first, last = -(-start // PAGE_BYTES) * PAGE_BYTES, end // PAGE_BYTES * PAGE_BYTES
        if first < last:
            yield first, last
