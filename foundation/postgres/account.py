"""As which user PostgreSQL runs, and what that user needs to reach its files."""

import contextlib
import os
import pwd
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from foundation.storage.errors import ConfigurationError

CAP_DAC_OVERRIDE = 1
CAP_DAC_READ_SEARCH = 2
_UNPRIVILEGED_USER = "nobody"


@dataclass(frozen=True)
class Account:
    """A user to run as; `drop` is false when that is who we are already."""

    uid: int
    gid: int
    drop: bool

    def give(self, path: Path) -> None:
        """Make this user the owner of a file or folder that we created."""
        if self.drop:
            os.chown(path, self.uid, self.gid)

    def launcher_options(self, program: Path, folders: list[Path]) -> list[str]:
        """Options for `launcher.py` to run `program`, which works inside `folders`."""
        if not self.drop:
            return []
        options = ["--uid", str(self.uid), "--gid", str(self.gid)]
        capability = self._capability_needed(program, folders)
        return options if capability is None else [*options, "--capability", str(capability)]

    def _capability_needed(self, program: Path, folders: list[Path]) -> int | None:
        if not self._may(program, stat.S_IROTH | stat.S_IXOTH):
            wanted = [CAP_DAC_OVERRIDE]
        elif all(self._may_reach(path) for path in (program, *folders)):
            return None
        else:
            wanted = [CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE]
        held = _capabilities_held()
        for capability in wanted:
            if held >> capability & 1:
                return capability
        raise ConfigurationError(
            f"PostgreSQL must not run as root, and user {self.uid} may not reach {program} or"
            f" {', '.join(map(str, folders))}. Start Counterfoil as an unprivileged user, or move"
            " it and its data folder to where others may enter, or allow CAP_DAC_READ_SEARCH."
        )

    def _may_reach(self, path: Path) -> bool:
        return all(self._may(folder, stat.S_IXOTH) for folder in path.resolve().parents)

    def _may(self, path: Path, bits_for_others: int) -> bool:
        status = path.stat()
        if status.st_uid == self.uid:
            wanted = bits_for_others << 6
        elif status.st_gid == self.gid:
            wanted = bits_for_others << 3
        else:
            wanted = bits_for_others
        return status.st_mode & wanted == wanted


def account_for(cluster: Path) -> Account:
    """The owner of an existing cluster, else ourselves, or `nobody` when we are root."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid(), drop=False)
    if cluster.exists() and cluster.stat().st_uid != 0:
        status = cluster.stat()
        return Account(status.st_uid, status.st_gid, drop=True)
    try:
        entry = pwd.getpwnam(_UNPRIVILEGED_USER)
    except KeyError:
        raise ConfigurationError(
            f"PostgreSQL must not run as root, and there is no user {_UNPRIVILEGED_USER!r} to run"
            " it as. Start Counterfoil as an unprivileged user."
        ) from None
    return Account(entry.pw_uid, entry.pw_gid, drop=True)


def socket_folder(preferred: Path, fallback_name: str, account: Account) -> Path:
    """A folder of mode 0700 whose sockets have a path that fits (107 bytes).

    `preferred` if short enough, else `fallback_name` in the temp folder: a fixed name, so that the
    address outlives a restart, and refused when somebody else was there first.
    """
    folder = preferred
    if len(os.fsencode(preferred / ".s.PGSQL.5432")) > 107:
        folder = Path("/tmp") / fallback_name
    try:
        folder.mkdir(mode=0o700)
        account.give(folder)
    except FileExistsError:
        status = folder.lstat()
        private = stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o700
        if not private or status.st_uid != account.uid:
            raise ConfigurationError(
                f"{folder} must be a folder of mode 0700 that belongs to user {account.uid};"
                " remove it"
            ) from None
    return folder


def remove_unfinished(path: Path) -> None:
    """Remove what an interrupted step left behind; nothing if there is nothing."""
    if path.exists():
        shutil.rmtree(path)


def remove_fallback(folder: Path, root: Path) -> None:
    """Remove a socket folder outside `root`, unless something is in it."""
    if root not in folder.parents:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _capabilities_held() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapPrm:"):
            return int(line.split()[1], 16)
    return 0
