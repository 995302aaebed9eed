"""Which PostgreSQL processes really work on a cluster, whatever a stale pid file says."""

import os
import signal
import time
from pathlib import Path

_SIGINT_PATIENCE_S = 30.0
_SIGQUIT_PATIENCE_S = 15.0


class PredecessorAlive(Exception):
    """An earlier server on this cluster does not end."""


def servers_on(cluster: Path) -> list[int]:
    """Pids of the postmaster and its children on `cluster`.

    A pid file may name a recycled pid, and children outlive a killed postmaster for a moment; each
    of them has the cluster as working folder and PostgreSQL as program, which cannot be mistaken.
    """
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            program = os.readlink(entry / "exe").removesuffix(" (deleted)")
            folder = os.readlink(entry / "cwd")
        except OSError:
            continue  # ended meanwhile, or not ours to see and so not our server
        if program.rpartition("/")[2] == "postgres" and folder == str(cluster):
            found.append(int(entry.name))
    return found


def end_predecessor(cluster: Path, socket: Path) -> None:
    """Wait until no server works on `cluster`, asking one that is still there to stop.

    The caller holds the lock of the folder, so a server that is still there has lost its
    supervisor. Then removes the pid files, which PostgreSQL would believe if their pid were in use
    again. Raises PredecessorAlive after about 45 s.
    """
    pid_file = cluster / "postmaster.pid"
    for sign, patience_s in (
        (signal.SIGINT, _SIGINT_PATIENCE_S),
        (signal.SIGQUIT, _SIGQUIT_PATIENCE_S),
    ):
        _signal_postmaster(pid_file, servers_on(cluster), sign)
        deadline = time.monotonic() + patience_s
        while servers_on(cluster) and time.monotonic() < deadline:
            time.sleep(0.02)
    remaining = servers_on(cluster)
    if remaining:
        raise PredecessorAlive(
            f"PostgreSQL processes {remaining} of an earlier start still use {cluster} and do not"
            " stop; end them and start again."
        )
    pid_file.unlink(missing_ok=True)
    socket.with_name(f"{socket.name}.lock").unlink(missing_ok=True)


def _signal_postmaster(pid_file: Path, alive: list[int], sign: signal.Signals) -> None:
    try:
        pid = int(pid_file.read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return
    if pid in alive:
        try:
            os.kill(pid, sign)
        except ProcessLookupError:
            return
