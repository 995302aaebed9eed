"""Install the locked packages and this project into `.venv`; do nothing when nothing changed.

`python -m tools.install` needs only the standard library; `--dev` adds the tools for tests and
lint. What was installed is noted in `.venv`, as a digest of the lock file and `pyproject.toml`.
"""

import argparse
import fcntl
import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from tools.interpreter import is_supported

REPO = Path(__file__).resolve().parent.parent
VENV = REPO / ".venv"
VENV_PYTHON = VENV / "bin" / "python"

REQUIREMENT = re.compile(r"^[a-z0-9][a-z0-9._-]*(\[[^]]*])?==", re.IGNORECASE)
PROGRESS = re.compile(r"^(?:Collecting|Requirement already satisfied:) ([A-Za-z0-9._-]+)")


class InstallError(Exception):
    """The environment could not be made; the message says what to do about it."""


def stamp(dev: bool) -> Path:
    """Return the file that holds the digest of what was installed."""
    return VENV / (".installed-dev" if dev else ".installed")


def lock_file(dev: bool) -> Path:
    """Return the lock file; the one for development contains the other."""
    return REPO / ("requirements-dev.lock" if dev else "requirements.lock")


def digest(dev: bool) -> str:
    """Return the digest of everything that an installation depends on."""
    # The editable installation maps top-level packages one by one, and knows where they are.
    packages = sorted(str(path) for path in REPO.glob("*/__init__.py"))
    inputs = [lock_file(dev).read_bytes(), (REPO / "pyproject.toml").read_bytes()]
    return hashlib.sha256(b"\0".join([*inputs, *map(str.encode, packages)])).hexdigest()


def installed(dev: bool) -> bool:
    """Say whether exactly this lock is installed; a development installation serves both."""
    if not VENV_PYTHON.exists():
        return False
    stages = (True,) if dev else (False, True)
    return any(stamp(one).exists() and stamp(one).read_text() == digest(one) for one in stages)


def package_count(lines: Iterable[str]) -> int:
    """Return the number of packages that a lock file pins."""
    return sum(1 for line in lines if REQUIREMENT.match(line))


def progress_name(line: str) -> str | None:
    """Return the package that this line of pip's output is about, or None."""
    match = PROGRESS.match(line)
    return match[1] if match else None


def make_environment() -> None:
    """Create `.venv` if it is not there."""
    if VENV_PYTHON.exists():
        return
    if not is_supported(sys.version_info[:2]):
        found = ".".join(map(str, sys.version_info[:3]))
        raise InstallError(
            f"Python 3.11 or 3.12 is needed, this is {found}: make PYTHON=python3.11"
        )
    if subprocess.run([sys.executable, "-m", "venv", VENV], check=False).returncode:
        raise InstallError("no virtual environment; on Debian: apt-get install python3-venv")


def pip(arguments: Sequence[str | os.PathLike[str]], total: int) -> None:
    """Run pip in `.venv` and show on one line how far it is; show all that it said if it fails."""
    command = [VENV_PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    # pip draws no bar into a pipe, so what is seen is ours: one line that is written over.
    live = sys.stdout.isatty()
    said: list[str] = []
    count = 0
    with subprocess.Popen(
        [*command, *arguments],
        cwd=REPO,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        for line in process.stdout or ():
            said.append(line)
            name = progress_name(line)
            if name:
                count += 1
            if live and name:
                print(f"\r\033[K  [{count}/{total}] {name}", end="", flush=True)
            elif live and line.startswith("Installing collected packages"):
                print("\r\033[K  unpacking", end="", flush=True)
    if live:
        print("\r\033[K", end="")
    if process.returncode:
        raise InstallError("".join(said) + "\npip could not install the packages (see above)")


def install(dev: bool) -> None:
    """Bring `.venv` to the state of the lock file."""
    begin = time.monotonic()
    lock = lock_file(dev)
    total = package_count(lock.read_text().splitlines())
    print(f"Installing {total} packages into .venv (only when {lock.name} changes) ...", flush=True)
    for one in (stamp(True), stamp(False)):
        one.unlink(missing_ok=True)
    # The lock is complete and hashed, so there is nothing to resolve.
    pip(["--no-deps", "--require-hashes", "-r", lock], total)
    pip(["--no-deps", "--no-build-isolation", "--editable", "."], 1)
    stamp(dev).write_text(digest(dev))
    print(f"Installed in {time.monotonic() - begin:.0f} s", flush=True)


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.install", description=__doc__)
    parser.add_argument("--dev", action="store_true", help="add the tools for tests and lint")
    dev: bool = parser.parse_args().dev
    if installed(dev):
        return 0
    try:
        make_environment()
        with (VENV / ".install.lock").open("w") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            if not installed(dev):
                install(dev)
    except InstallError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
