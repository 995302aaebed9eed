"""The data folder of an embedded deployment: one owner at a time, private, with fixed places."""

import fcntl
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from foundation.durable import fsync_folder, write_private_file

SERVICE_KEY_NAME = "service_key"
"""Name of the file that holds the service credential of a data folder."""

SERVICE_KEY_CHARACTERS_MIN = 32
"""Shorter service credentials are not accepted."""


class FolderInUse(Exception):
    """Another live process holds the data folder."""

    def __init__(self, path: Path, pid: int | None) -> None:
        owner = f"process {pid}" if pid is not None else "another process"
        super().__init__(
            f"The data folder {path} is in use by {owner}. Stop that process, or give this one"
            " another folder with COUNTERFOIL_DATA_DIR."
        )
        self.path = path
        self.pid = pid


@dataclass(frozen=True)
class DataFolder:
    """A locked data folder. The lock lasts until `close()` or the end of this process, even by
    SIGKILL, because it belongs to an open file and not to a file's content."""

    path: Path
    lock_fd: int

    @classmethod
    def open(cls, path: Path) -> Self:
        """Create the folder (mode 0700) when missing and lock it; raises FolderInUse."""
        path = path.absolute()
        if not path.is_dir():
            path.mkdir(mode=0o700, parents=True)
            fsync_folder(path.parent)
        return cls(path, _lock(path))

    def close(self) -> None:
        """Give the folder up. Everything that uses it must have ended before."""
        os.close(self.lock_fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def postgres(self) -> Path:
        """Where the embedded PostgreSQL lives (cluster, log, socket)."""
        return self.folder("postgres")

    @property
    def sockets(self) -> Path:
        """Where Unix sockets of our own servers go."""
        return self.folder("sockets")

    @property
    def seal_keys_file(self) -> Path:
        """The key ring that `foundation.storage.SealRing` reads; may not exist yet."""
        return self.path / "seal_keys.json"

    @property
    def service_key_file(self) -> Path:
        """The credential that services of this folder show each other; see `service_key`."""
        return self.path / SERVICE_KEY_NAME

    def service_key(self) -> str:
        """The service credential: 43 random URL-safe characters, made at the first call."""
        if not self.service_key_file.exists():
            write_private_file(self.service_key_file, secrets.token_urlsafe(32).encode())
        return self.service_key_file.read_text().strip()

    def boots_id(self) -> str:
        """What all processes that ever hold this folder have in common; made at the first call."""
        path = self.path / "boots_id"
        if not path.exists():
            write_private_file(path, secrets.token_hex(8).encode())
        return path.read_text().strip()

    def folder(self, name: str) -> Path:
        """A private folder (0700) of that name inside, created when missing."""
        folder = self.path / name
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder


def _lock(path: Path) -> int:
    fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.read(fd, 32).decode(errors="replace").strip()
        os.close(fd)
        raise FolderInUse(path, int(text) if text.isdecimal() else None) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd
