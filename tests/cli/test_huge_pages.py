"""What a process holds moves into huge pages, and nothing that it does not hold."""

import platform
import re
import subprocess
import sys

import pytest

from cli import huge_pages

_MOVED = """
from pathlib import Path
from cli import huge_pages

def kilobytes(name):
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))

held = [{"n": n} for n in range(300_000)]
before = kilobytes("Rss")
moved = huge_pages.move()
assert [one["n"] for one in held] == list(range(300_000))
print(moved, kilobytes("AnonHugePages"), kilobytes("Rss") - before)
"""


_RESERVED = """
import threading
from pathlib import Path
from cli import huge_pages

def kilobytes(name):
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))

def pieces():
    found = set()
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, access, _, _, inode, *name = line.split()
        start, end = (int(address, 16) for address in addresses.split("-"))
        if access == "rw-p" and inode == "0" and not name and end - start >= 2**20:
            found.add(start)
    return found

huge_pages.reserve(MEBIBYTES)
for thread in threading.enumerate():
    if thread.name == "huge-pages":
        thread.join()
huge, before = kilobytes("AnonHugePages"), pieces()
import grpc, pydantic  # libraries, and much to remember
held = [{"n": n} for n in range(20_000)]
print(len(pieces() - before), huge)
"""


def test_mappings_without_a_file_are_the_heap() -> None:
    of_the_heap = [
        "55d00000-56000000 rw-p 00000000 00:00 0                  [heap]",
        "7f000000-7f400000 rw-p 00000000 00:00 0 ",
    ]
    others = [
        "7f400000-7f800000 r--p 00000000 00:00 0 ",
        "7f800000-7fc00000 rw-s 00000000 00:00 0 ",
        "80000000-80400000 rw-p 00001000 fe:00 1234               /usr/lib/x y.so",
        "81000000-81400000 rw-p 00000000 00:00 0                  [stack]",
    ]
    lines = [line for one in (*of_the_heap, *others) for line in (one, *_details(huge_kilobytes=0))]
    assert list(huge_pages.heap(lines)) == [(0x55D00000, 0x56000000), (0x7F000000, 0x7F400000)]


def _details(huge_kilobytes: int) -> tuple[str, ...]:
    return "Rss: 12 kB", f"AnonHugePages: {huge_kilobytes} kB", "VmFlags: rd wr mr mw me ac"


@pytest.mark.parametrize(("huge_kilobytes", "is_left"), [(0, True), (2048, True), (4096, False)])
def test_a_mapping_that_is_in_huge_pages_is_left_alone(huge_kilobytes: int, is_left: bool) -> None:
    mapping = "7f100000-7f700000 rw-p 00000000 00:00 0 "  # two huge pages and two ends
    lines = [mapping, *_details(huge_kilobytes)]
    assert list(huge_pages.heap(lines)) == [(0x7F100000, 0x7F700000)] * is_left


_KERNEL = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
_needs_huge_pages = pytest.mark.skipif(
    not huge_pages.offered() or _KERNEL < (6, 1),
    reason="this system has no huge pages, or does not make them when asked",
)


def _pieces_between_libraries(mebibytes: int) -> tuple[int, int]:
    """How many there are after large imports, and the kilobytes in huge pages before."""
    code = _RESERVED.replace("MEBIBYTES", str(mebibytes))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    pieces, huge_kilobytes = map(int, done.stdout.split())
    return pieces, huge_kilobytes


@_needs_huge_pages
def test_what_is_reserved_is_huge_and_used_before_memory_between_libraries() -> None:
    pieces, huge_kilobytes = _pieces_between_libraries(64)
    assert pieces < _pieces_between_libraries(0)[0]
    assert huge_kilobytes > 48 * 1024


@_needs_huge_pages
def test_a_heap_moves_into_huge_pages_and_hardly_grows_by_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MOVED], capture_output=True, text=True, check=True
    )
    moved, huge_kilobytes, grown_kilobytes = map(int, done.stdout.split())
    assert moved > 5
    assert huge_kilobytes == moved * huge_pages.PAGE_BYTES // 1024
    assert grown_kilobytes < huge_kilobytes // 4
