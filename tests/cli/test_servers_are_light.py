"""A server loads nothing of the SDK that its clients use: importing it takes a second."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

CODE = """
import importlib, sys
import cli.embedded, cli.processes
from cli import composition
for service in (*composition.SERVICES, composition.RUNNER):
    importlib.import_module(f"services.{service}.service")
print([name for name in sys.modules if name.partition(".")[0] == "anthropic"])
"""


def test_no_server_imports_the_clients_sdk() -> None:
    told = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert told.stdout.strip() == "[]"
