"""Writing small private files so that a crash leaves the old content or the new, never half."""

import os
import tempfile
from pathlib import Path


def write_private_file(path: Path, content: bytes) -> None:
    """Create or replace `path` (mode 0600) atomically; on return it is on disk."""
    fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    fsync_folder(path.parent)


def fsync_folder(path: Path) -> None:
    """Put a folder's entries on disk: a rename or creation inside lasts only after this."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
