"""What client programs need beyond our own environment, installed when a test first asks for it.

Everything goes into `build/clients`, stays there until its pins change, and comes from the package
managers of the languages: pip, npm, go.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools import proto

REPO = Path(__file__).resolve().parents[2]
DRIVERS = Path(__file__).parent / "drivers"
_BUILD = REPO / "build" / "clients"
_SECONDS = 540

GO_CODE = ("generate", proto.BUNDLE.name, "--exclude-path", "google")
"""How buf writes Go code of the contracts; what it leaves out is published already."""


def run(command: Sequence[str | Path], cwd: Path, **more: str) -> None:
    """Runs an installer; its output is in the failure."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def python_environment(name: str) -> Path:
    """The interpreter of an environment with the packages of `drivers/<name>.txt`."""
    pins = DRIVERS / f"{name}.txt"

    def install(folder: Path) -> None:
        run([sys.executable, "-m", "venv", folder], REPO)
        run([folder / "bin/python", "-m", "pip", "install", "--quiet", "-r", pins], REPO)

    return _installed(name, [pins], install) / "bin" / "python"


def node_folder() -> Path:
    """A copy of `drivers/node` with its packages."""
    source = DRIVERS / "node"

    def install(folder: Path) -> None:
        shutil.copytree(source, folder, dirs_exist_ok=True)
        run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)

    return _installed("node", sorted(source.iterdir()), install)


def go_driver() -> Path:
    """The program of `drivers/go`, with code generated from the published contracts."""
    source = DRIVERS / "go"
    bundle = contracts()
    names = ("go.mod", "go.sum", "buf.gen.yaml", "main.go", "driver.go")

    def build(folder: Path) -> None:
        for name in names:
            shutil.copy(source / name, folder)
        shutil.copy(bundle, folder)
        run([proto.script("buf"), *GO_CODE], folder)
        run(["go", "build", "-buildvcs=false", "-o", "driver", "."], folder)

    return _installed("go", [*(source / name for name in names), bundle], build) / "driver"


def contracts() -> Path:
    """What `make contracts` writes, of the contracts of now."""

    def compile(folder: Path) -> None:
        proto.write_image(proto.PROTO_DIR, folder / proto.BUNDLE.name, source_info=True)

    own = [proto.PROTO_DIR / name for name in proto.contract_names(proto.PROTO_DIR)]
    return _installed("contracts", own, compile) / proto.BUNDLE.name


def _installed(name: str, inputs: Sequence[Path], install: Callable[[Path], None]) -> Path:
    """`build/clients/<name>`, installed unless the inputs are those of the last time."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in inputs)).hexdigest()
    folder = _BUILD / name
    mark = folder / ".inputs"
    with _alone(name):
        if not mark.exists() or mark.read_text() != digest:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            install(folder)
            mark.write_text(digest)
    return folder


@contextmanager
def _alone(name: str) -> Generator[None]:
    """Workers of one run install one after the other."""
    _BUILD.mkdir(parents=True, exist_ok=True)
    with (_BUILD / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
