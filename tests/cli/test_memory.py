"""A process that has started keeps what it frees."""

import subprocess
import sys

_ROUNDS = """
import resource
from cli.memory import settle

settle()
counts = []
for _ in range(6):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    copies = [bytes(5_000_000) for _ in range(4)]
    for copy in copies:
        bytes(memoryview(copy))
    del copies, copy
    counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(*counts)
"""


def test_the_memory_of_a_large_request_serves_the_next_one() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ROUNDS], capture_output=True, text=True, check=True
    )
    first, *later = map(int, done.stdout.split())
    assert first > 1000
    assert max(later[1:]) < 100
