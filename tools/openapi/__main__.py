"""`python -m tools.openapi` writes `gateway/openapi.json`; `--check` compares instead.

`breaking` compares the contracts with `proto/openapi-baseline.json`, `baseline` accepts them as
what must not break.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tools.openapi.compatible import breaks
from tools.openapi.document import build
from tools.proto import REPO

DOCUMENT = REPO / "gateway" / "openapi.json"
BASELINE = REPO / "proto" / "openapi-baseline.json"


def rendered(document: Any) -> str:
    """The document as it is committed."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _write(path: Path, text: str) -> int:
    changed = not path.exists() or path.read_text() != text
    if changed:
        path.write_text(text)
    print(f"{path.relative_to(REPO)}: {'written' if changed else 'unchanged'}")
    return 0


def _check(text: str) -> int:
    if DOCUMENT.exists() and DOCUMENT.read_text() == text:
        return 0
    print("gateway/openapi.json is stale; run `make proto` and commit the result")
    return 1


def _breaking(document: Any) -> int:
    found = breaks(json.loads(BASELINE.read_text()), document)
    if found:
        print("REST clients would break; if that is meant, run `make proto-baseline`:")
        print(*found, sep="\n")
    return 1 if found else 0


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.openapi", description=__doc__)
    commands = ("generate", "breaking", "baseline")
    parser.add_argument("command", nargs="?", choices=commands, default="generate")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args()
    document = build()
    match options.command:
        case "breaking":
            return _breaking(document)
        case "baseline":
            return _write(BASELINE, rendered(document))
        case _:
            text = rendered(document)
            return _check(text) if options.check else _write(DOCUMENT, text)


if __name__ == "__main__":
    sys.exit(main())
