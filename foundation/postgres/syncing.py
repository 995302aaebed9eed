"""How PostgreSQL makes sure before a crash recovery that what it reads is on disk.

`fsync` opens every file of the cluster, more than a thousand, one after the other; `syncfs` asks
the kernel once for the whole file system. They promise the same where the kernel reports errors of
`syncfs` (Linux 5.8) and the file system carries it out itself.
"""

import re
from collections.abc import Iterable
from pathlib import Path

_REPORTS_ERRORS = (5, 8)
_FILE_SYSTEMS = ("btrfs", "ext4", "xfs")
_MOUNTS = Path("/proc/self/mountinfo")


def sync_method(release: str, file_system: str) -> str:
    """`syncfs` where it is as good as `fsync`, by the kernel's release and the file system's type;
    `fsync` wherever that is not known."""
    version = re.match(r"(\d+)\.(\d+)", release)
    if version is None or (int(version[1]), int(version[2])) < _REPORTS_ERRORS:
        return "fsync"
    return "syncfs" if file_system in _FILE_SYSTEMS else "fsync"


def file_system_of(folder: Path, mounts: Iterable[str]) -> str:
    """The type of the file system that holds an absolute, resolved folder, from the lines of
    `mountinfo`; empty when none of them does."""
    best, found = -1, ""
    for line in mounts:
        placed, _, described = line.partition(" - ")
        point = _plain(placed.split(" ")[4])
        # The later of two on one point hides the earlier one.
        if folder.is_relative_to(point) and len(point) >= best:
            best, found = len(point), described.split(" ")[0]
    return found


def mounts() -> list[str]:
    """The lines of `mountinfo`; none where there is no such file."""
    try:
        return _MOUNTS.read_text().splitlines()
    except OSError:
        return []


def _plain(point: str) -> str:
    """A mount point without the kernel's octal escapes."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), point)
