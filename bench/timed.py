"""`counterfoil run` that notes when its commits ended: `python -m bench.timed FILE`.

The file gets one double (seconds of the monotonic clock) for each commit.
"""

import os
import struct
import sys
import time

from cli import huge_pages
from foundation import failpoints

_END = ".after"


def main() -> None:
    """Runs it."""
    huge_pages.reserve(huge_pages.SERVER_MIB)
    from cli.main import app

    file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def note(name: str) -> None:
        if name.endswith(_END):
            os.write(file, struct.pack("d", time.monotonic()))

    failpoints.install(note)
    app(["run"])


if __name__ == "__main__":
    main()
