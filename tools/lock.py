"""Write the lock files: every package that is installed, with its hashes and nothing of a machine.

`python -m tools.lock` keeps the versions that are locked already; `--upgrade` takes newer ones.
The runtime comes first and constrains the lock for development, which contains it.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
COMPILE = (
    *("--quiet", "--universal", "--python-version=3.11", "--generate-hashes"),
    *("--no-emit-index-url", "--no-emit-find-links", "--custom-compile-command=make lock"),
    *("--group=pyproject.toml:build", "pyproject.toml"),
)


def compile_lock(name: str, arguments: Sequence[str]) -> None:
    """Resolve pyproject.toml into the named lock file."""
    command = [sys.executable, "-m", "uv", "pip", "compile", *COMPILE, *arguments]
    subprocess.run([*command, f"--output-file={name}"], cwd=REPO, check=True)


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.lock", description=__doc__)
    parser.add_argument("--upgrade", action="store_true", help="take newer versions")
    upgrade = ["--upgrade"] if parser.parse_args().upgrade else []
    # Needed by nobody who installs, so it is not in the locks that it writes.
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "uv"], check=True)
    compile_lock("requirements.lock", upgrade)
    compile_lock("requirements-dev.lock", [*upgrade, "--extra=dev", "-c=requirements.lock"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
