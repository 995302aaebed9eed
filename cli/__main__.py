"""`counterfoil`: what has to come before the rest of the program is imported."""

import sys

from cli import huge_pages

RESERVED_MIB = {
    "run": huge_pages.SERVER_MIB,
    "serve": huge_pages.SERVICE_MIB,
    "runner": huge_pages.SERVICE_MIB,
    "gateway": huge_pages.SERVICE_MIB,
}
"""Commands that go on until they are stopped."""


def main() -> None:
    """Runs the command line."""
    words = sys.argv[1:]
    if words and words[0] in RESERVED_MIB and "--help" not in words:
        huge_pages.reserve(RESERVED_MIB[words[0]])
    from cli.main import app

    app()


if __name__ == "__main__":
    main()
