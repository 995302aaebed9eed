"""Says whether the Python that runs this serves the project, and whether it is a fast one.

The Makefile asks every Python it finds: `python3 tools/interpreter.py fast` (or `any`) exits with 0
for yes. One that cannot even run this is none of them; it needs no more than the standard library.
"""

from __future__ import annotations

import sys
import sysconfig
from importlib.util import find_spec

VERSION_MIN, VERSION_END = (3, 11), (3, 13)
SYSTEM_PREFIX = "/usr"
OPTIMISED = "--enable-optimizations"


def is_supported(version: tuple[int, int]) -> bool:
    """Whether we are tested with this version."""
    return VERSION_MIN <= version < VERSION_END


def is_optimised(prefix: str, options: str) -> bool:
    """Whether the interpreter was compiled with profiles of itself, going by where it is installed
    and the options it was configured with.

    Distributions compile theirs so, in builds of their own that the options do not show. Who
    compiles one with the default options gets a slower one.
    """
    return prefix == SYSTEM_PREFIX or OPTIMISED in options


def this_is_optimised() -> bool:
    """Whether the interpreter that runs this was."""
    return is_optimised(sys.base_prefix, sysconfig.get_config_var("CONFIG_ARGS") or "")


def makes_environments() -> bool:
    """Whether `python -m venv` works; Debian has a package of its own for that."""
    return find_spec("ensurepip") is not None


def main(need: str) -> bool:
    """Whether this Python is what is needed: `fast` or `any`."""
    if not is_supported(sys.version_info[:2]):
        return False
    return need == "any" or (this_is_optimised() and makes_environments())


if __name__ == "__main__":
    sys.exit(not main(sys.argv[1]))
