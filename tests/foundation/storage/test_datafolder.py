"""The data folder belongs to one process at a time and is private."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from foundation.datafolder import DataFolder, FolderInUse
from tests.support.processes import python_environment

HOLD = """
import sys
from pathlib import Path
from foundation.datafolder import DataFolder
folder = DataFolder.open(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_second_use_is_refused_and_names_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with (
        DataFolder.open(path),
        pytest.raises(FolderInUse, match=f"{path}.*process {os.getpid()}"),
    ):
        DataFolder.open(path)
    DataFolder.open(path).close()


def test_a_killed_holder_leaves_no_lock_behind(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        env=python_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(FolderInUse) as refused:
            DataFolder.open(path)
        assert refused.value.pid == holder.pid
        holder.kill()
        holder.wait(10)
    DataFolder.open(path).close()


def test_everything_inside_is_private(tmp_path: Path) -> None:
    with DataFolder.open(tmp_path / "deep" / "data") as folder:
        key = folder.service_key()
        assert len(key) == 43
        assert folder.service_key() == key
        assert mode(folder.service_key_file) == 0o600
        assert {mode(place) for place in (folder.path, folder.postgres, folder.sockets)} == {0o700}
