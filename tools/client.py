"""Generate what `clients/python` knows of the contracts; `--check` compares instead.

Only the public contracts and what they import; `betterproto2` makes the messages, with stubs for
grpclib. Written to `clients/python/counterfoil_client/gen`, which nobody edits.
"""

import argparse
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from tools import proto

GEN_DIR = proto.REPO / "clients" / "python" / "counterfoil_client" / "gen"
PUBLIC = (
    "counterfoil/ledger/v1/session.proto",
    "counterfoil/registry/v1/agent.proto",
    "counterfoil/registry/v1/environment.proto",
)


def public_names(files: Iterable[FileDescriptorProto]) -> list[str]:
    """The public contracts and those of ours that they import."""
    known = {file.name: file for file in files}
    found: set[str] = set()
    waiting: list[str] = list(PUBLIC)
    while waiting:
        name = waiting.pop()
        if name in known and name not in found:
            found.add(name)
            waiting.extend(known[name].dependency)
    return sorted(found)


def generated() -> dict[PurePosixPath, bytes]:
    """Relative path → content of every generated file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        own = proto.write_image(proto.PROTO_DIR, folder / "image.binpb", source_info=False)
        deps = proto.dependencies()
        for file in deps.file:
            file.source_code_info.location.add()  # the plugin crashes on a file without any
        (folder / "deps.binpb").write_bytes(deps.SerializeToString(deterministic=True))
        out = folder / "out"
        out.mkdir()
        plugin = proto.script("protoc-gen-python_betterproto2")
        command = [
            *(sys.executable, "-m", "grpc_tools.protoc"),
            f"--descriptor_set_in={folder / 'deps.binpb'}",
            f"-I{proto.PROTO_DIR}",
            f"--plugin=protoc-gen-python_betterproto2={plugin}",
            f"--python_betterproto2_out={out}",
            "--python_betterproto2_opt=client_generation=async",
            *public_names(own.file),
        ]
        # The plugin calls ruff by its name.
        environment = {"PATH": f"{sysconfig.get_path('scripts')}:/usr/bin:/bin"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise proto.ContractError(done.stderr)
        return read(out)


def read(root: Path) -> dict[PurePosixPath, bytes]:
    """Relative path → content of the Python files below a folder."""
    files = root.rglob("*.py")
    return {PurePosixPath(path.relative_to(root).as_posix()): path.read_bytes() for path in files}


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.client", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, do not write")
    expected, found = generated(), read(GEN_DIR)
    changes = proto.differences(expected, found)
    if parser.parse_args().check:
        if changes:
            print("clients/python is stale; run `make proto` and commit the result:", *changes)
        return int(bool(changes))
    for path in found.keys() - expected.keys():
        (GEN_DIR / path).unlink()
    for path, content in expected.items():
        (GEN_DIR / path).parent.mkdir(parents=True, exist_ok=True)
        (GEN_DIR / path).write_bytes(content)
    print(f"clients/python: {len(expected)} files, {len(changes)} changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
