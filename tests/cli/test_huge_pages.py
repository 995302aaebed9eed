"""What a process holds moves into huge pages, and nothing that it does not hold."""

import subprocess
import sys
from pathlib import Path

import pytest

from cli import huge_pages

_ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")

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
from pathlib import Path
from cli import huge_pages

def pieces():
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {start for start, end in huge_pages.heap(maps) if end - start >= 2**20}

huge_pages.reserve(MEBIBYTES)
before = pieces()
import grpc, pydantic  # libraries, and much to remember
held = [{"n": n} for n in range(20_000)]
print(len(pieces() - before))
"""


def test_mappings_without_a_file_are_the_heap() -> None:
    maps = [
        "55d0-55d8 rw-p 00000000 00:00 0                          [heap]",
        "7f00-7f08 rw-p 00000000 00:00 0 ",
        "7f10-7f18 r--p 00000000 00:00 0 ",
        "7f20-7f28 rw-s 00000000 00:00 0 ",
        "7f30-7f38 rw-p 00001000 fe:00 1234                       /usr/lib/x.so",
        "7f40-7f48 rw-p 00000000 00:00 0                          [stack]",
    ]
    assert list(huge_pages.heap(maps)) == [(0x55D0, 0x55D8), (0x7F00, 0x7F08)]


_needs_huge_pages = pytest.mark.skipif(
    not _ENABLED.exists() or "[never]" in _ENABLED.read_text(),
    reason="this system has no huge pages",
)


def _pieces_mapped_between_libraries(mebibytes: int) -> int:
    code = _RESERVED.replace("MEBIBYTES", str(mebibytes))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout)


@_needs_huge_pages
def test_what_is_reserved_is_used_before_memory_between_libraries() -> None:
    # glibc's own heap may be one of them.
    assert _pieces_mapped_between_libraries(64) <= 2 < _pieces_mapped_between_libraries(0)


@_needs_huge_pages
def test_a_heap_moves_into_huge_pages_and_hardly_grows_by_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MOVED], capture_output=True, text=True, check=True
    )
    moved, huge_kilobytes, grown_kilobytes = map(int, done.stdout.split())
    assert moved > 5
    assert huge_kilobytes == moved * huge_pages.PAGE_BYTES // 1024
    assert grown_kilobytes < huge_kilobytes // 4
