"""`counterfoil`: what has to come before the rest of the program is imported."""

import sys

from cli import huge_pages

_RESERVED_MIB = {
    "run": huge_pages.SERVER_MIB,
    "serve": huge_pages.SERVICE_MIB,
    "runner": huge_pages.SERVICE_MIB,
    "gateway": huge_pages.SERVICE_MIB,
}
"""Commands that go on until they are stopped."""


def main() -> None:
    """Runs the command line."""
    reserved = _RESERVED_MIB.get(sys.argv[1]) if len(sys.argv) > 1 else None
    if reserved:
        huge_pages.reserve(reserved)
    from cli.main import app

    app()


if __name__ == "__main__":
    main()
