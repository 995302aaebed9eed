"""Generate what `clients/python` knows of the contracts; `--check` compares instead.

Only the public contracts and the messages that they use; `betterproto2` makes these, with stubs for
grpclib. Written to `clients/python/counterfoil_client/gen`, which nobody edits.
"""

import argparse
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from google.protobuf.compiler.plugin_pb2 import CodeGeneratorRequest, CodeGeneratorResponse
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from tools import proto

GEN_DIR = proto.REPO / "clients" / "python" / "counterfoil_client" / "gen"
PUBLIC = (
    "counterfoil/context/v1/snapshots.proto",
    "counterfoil/ledger/v1/session.proto",
    "counterfoil/registry/v1/agent.proto",
    "counterfoil/registry/v1/environment.proto",
)
_ONLY_OPTIONS = ("buf.validate", "google.api")
"""Packages that only say something about fields and methods; no message holds a value of theirs."""
_DESCRIPTORS = "google/protobuf/descriptor.proto"


def public_files(files: Iterable[FileDescriptorProto]) -> list[FileDescriptorProto]:
    """The public contracts and those that they import, as far as values of their types are sent."""
    known = {file.name: file for file in files if file.package not in _ONLY_OPTIONS}
    found: set[str] = set()
    waiting: list[str] = list(PUBLIC)
    while waiting:
        name = waiting.pop()
        if name in known and name not in found:
            found.add(name)
            waiting.extend(known[name].dependency)
    return [file for name, file in known.items() if name in found]


def generated() -> dict[PurePosixPath, bytes]:
    """Relative path → content of every generated file."""
    with tempfile.TemporaryDirectory() as folder:
        own = proto.write_image(proto.PROTO_DIR, Path(folder) / "image.binpb", source_info=True)
    imported = [file for file in proto.dependencies().file if file.name != _DESCRIPTORS]
    for file in imported:
        file.source_code_info.location.add()  # the plugin crashes on a file without any
    files = public_files([*imported, *own.file])
    request = CodeGeneratorRequest(
        file_to_generate=[file.name for file in files],
        parameter="client_generation=async",
        proto_file=files,
    )
    done = subprocess.run(
        [proto.script("protoc-gen-python_betterproto2")],
        input=request.SerializeToString(deterministic=True),
        # The plugin calls ruff by its name.
        env={"PATH": f"{sysconfig.get_path('scripts')}:/usr/bin:/bin"},
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise proto.ContractError(done.stderr.decode())
    made = CodeGeneratorResponse.FromString(done.stdout).file
    modules = [file for file in made if file.name.endswith(".py")]
    return {PurePosixPath(file.name): file.content.encode() for file in modules}


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.client", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, do not write")
    return proto.write_or_compare(GEN_DIR, generated(), check=parser.parse_args().check)


if __name__ == "__main__":
    sys.exit(main())
