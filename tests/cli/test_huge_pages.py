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


@pytest.mark.skipif(
    not _ENABLED.exists() or "[never]" in _ENABLED.read_text(),
    reason="this system has no huge pages",
)
def test_a_heap_moves_into_huge_pages_and_hardly_grows_by_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MOVED], capture_output=True, text=True, check=True
    )
    moved, huge_kilobytes, grown_kilobytes = map(int, done.stdout.split())
    assert moved > 5
    assert huge_kilobytes == moved * huge_pages.PAGE_BYTES // 1024
    assert grown_kilobytes < huge_kilobytes // 4
