"""What a run was measured on."""

import datetime
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import psutil

from tools import interpreter

_PACKAGES = ("aiohttp", "anthropic", "asyncpg", "grpcio", "uvicorn", "uvloop")


def describe() -> dict[str, str]:
    """Hardware, versions, date and commit; nothing that names a machine or its folders."""
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "cores": str(os.cpu_count()),
        "CPU": _cpu(),
        "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "Python": _python(),
        "load before": f"{os.getloadavg()[0]:.1f}",
        **{name: version(name) for name in _PACKAGES},
    }


def _python() -> str:
    build = "profile-guided" if interpreter.this_is_optimised() else "unoptimised"
    return f"{platform.python_version()}, {build} build"


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str:
    here = Path(__file__).resolve().parent

    def git(*arguments: str) -> str:
        try:
            done = subprocess.run(
                ["git", *arguments], cwd=here, capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            return ""
        return done.stdout.strip()

    commit = git("rev-parse", "--short=12", "HEAD") or "unknown"
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!report.md")
    return f"{commit} with changes" if changed else commit
