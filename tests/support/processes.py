"""Python processes that a test starts, kills and replaces."""

import os
import sys


def python_environment(**settings: str) -> dict[str, str]:
    """Environment for `sys.executable` that finds what this process finds, and little else."""
    return {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **settings}
