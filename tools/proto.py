"""Contracts: generate, lint and compare `proto/counterfoil/**/*.proto`, without a network.

`python -m tools.proto` writes `gen/python`; `--check` compares instead and exits 1 when the
committed code is stale. `lint`, `breaking` and `baseline` work on a compiled image, because buf
would otherwise fetch the imported contracts from a registry.
"""

import argparse
import importlib
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from protovalidate._gen.buf.validate import validate_pb

REPO = Path(__file__).resolve().parent.parent
PROTO_DIR = REPO / "proto"
GEN_DIR = REPO / "gen" / "python"
BUILD_DIR = REPO / "build" / "proto"
BASELINE = PROTO_DIR / "baseline.binpb"
BUNDLE = REPO / "dist" / "contracts" / "counterfoil.binpb"

PACKAGE = "counterfoil"
VALIDATE_PROTO = "buf/validate/validate.proto"
"""protovalidate holds its contract for another runtime; we generate the ordinary module."""

IMPORTABLE_MODULES = (
    "google.protobuf.any_pb2",
    "google.protobuf.descriptor_pb2",
    "google.protobuf.duration_pb2",
    "google.protobuf.empty_pb2",
    "google.protobuf.field_mask_pb2",
    "google.protobuf.struct_pb2",
    "google.protobuf.timestamp_pb2",
    "google.protobuf.wrappers_pb2",
    "google.api.annotations_pb2",
    "google.api.field_behavior_pb2",
    "google.api.httpbody_pb2",
    "google.rpc.error_details_pb2",
    "google.rpc.status_pb2",
)
"""Installed contracts that ours may import."""


class ContractError(Exception):
    """A contract does not compile, or a tool refused it; the tool's own words are on stderr."""


def dependencies() -> FileDescriptorSet:
    """Return the contracts that ours may import, each after the ones it imports itself."""
    files: dict[str, FileDescriptorProto] = {}

    def add(descriptor: FileDescriptor) -> None:
        if descriptor.name in files:
            return
        for imported in descriptor.dependencies:
            add(imported)
        proto = FileDescriptorProto()
        descriptor.CopyToProto(proto)
        files[descriptor.name] = proto

    for name in IMPORTABLE_MODULES:
        add(importlib.import_module(name).DESCRIPTOR)
    files[VALIDATE_PROTO] = FileDescriptorProto.FromString(validate_pb._DESC.proto.to_binary())  # pyright: ignore[reportPrivateUsage]
    return FileDescriptorSet(file=files.values())


def contract_names(proto_dir: Path) -> list[str]:
    """Return our contracts, as protoc names them: relative to `proto_dir`, sorted."""
    found = (proto_dir / PACKAGE).rglob("*.proto")
    return sorted(path.relative_to(proto_dir).as_posix() for path in found)


def run(arguments: Sequence[str | os.PathLike[str]]) -> None:
    """Run a tool in the repository; raise ContractError if it fails."""
    if subprocess.run(arguments, cwd=REPO, check=False).returncode:
        raise ContractError(f"{Path(arguments[0]).name} failed")


def script(name: str) -> Path:
    """Return a console script of this environment, whether or not it is on PATH."""
    return Path(sysconfig.get_path("scripts")) / name


def protoc(proto_dir: Path, outputs: Iterable[str], names: Iterable[str]) -> None:
    """Compile the named contracts with protoc; raise ContractError if one is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        deps = Path(folder) / "deps.binpb"
        deps.write_bytes(dependencies().SerializeToString(deterministic=True))
        plugins = (
            f"--plugin={name}={script(name)}"
            for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")
        )
        compiler = (sys.executable, "-m", "grpc_tools.protoc", f"--descriptor_set_in={deps}")
        run([*compiler, f"-I{proto_dir}", *plugins, *outputs, *names])


def write_image(
    proto_dir: Path, image: Path, *, source_info: bool, flags: Iterable[str] = ()
) -> FileDescriptorSet:
    """Compile our contracts into one descriptor set, imports first; return only our files."""
    image.parent.mkdir(parents=True, exist_ok=True)
    outputs = [*flags, f"--descriptor_set_out={image}"]
    if source_info:
        outputs.append("--include_source_info")
    protoc(proto_dir, outputs, contract_names(proto_dir))
    own = FileDescriptorSet.FromString(image.read_bytes())
    # All dependencies, not only those in use: a dropped import is no broken contract.
    whole = FileDescriptorSet(file=[*dependencies().file, *own.file])
    image.write_bytes(whole.SerializeToString(deterministic=True))
    return own


def generate(proto_dir: Path, out_dir: Path) -> None:
    """Write message classes, async gRPC stubs, their types and package files into `out_dir`."""
    with tempfile.TemporaryDirectory() as folder:
        own = write_image(proto_dir, Path(folder) / "image.binpb", source_info=False)
    names = [file.name for file in own.file]
    messages = [f"--python_out={out_dir}", f"--mypy_out=quiet:{out_dir}"]
    protoc(proto_dir, messages, [*names, VALIDATE_PROTO])
    with_service = [file.name for file in own.file if file.service]
    if with_service:
        stubs = [f"--grpc_python_out={out_dir}", f"--mypy_grpc_out=quiet,only_async:{out_dir}"]
        protoc(proto_dir, stubs, with_service)
    for folder_path in sorted({path.parent for path in out_dir.rglob("*.py")}):
        for package in (folder_path, *folder_path.parents):
            if package == out_dir:
                break
            label = ".".join(package.relative_to(out_dir).parts)
            (package / "__init__.py").write_text(
                f'"""Generated from the contracts of `{label}`."""\n'
            )


def read_tree(root: Path) -> dict[PurePosixPath, bytes]:
    """Return the generated files below `root`: relative path → content."""
    return {
        PurePosixPath(path.relative_to(root).as_posix()): path.read_bytes()
        for path in root.rglob("*.py*")
        if path.suffix in (".py", ".pyi")
    }


def differences(
    expected: dict[PurePosixPath, bytes], found: dict[PurePosixPath, bytes]
) -> list[str]:
    """Return one line for each file that is missing, left over or different; empty if none is."""
    lines = [f"missing    {path}" for path in expected.keys() - found.keys()]
    lines += [f"left over  {path}" for path in found.keys() - expected.keys()]
    common = expected.keys() & found.keys()
    lines += [f"different  {path}" for path in common if expected[path] != found[path]]
    return sorted(lines)


def replace_tree(root: Path, expected: dict[PurePosixPath, bytes]) -> None:
    """Make the generated files below `root` equal to `expected`, touching only what differs."""
    found = read_tree(root)
    for path in found.keys() - expected.keys():
        (root / path).unlink()
    for path, content in expected.items():
        if found.get(path) == content:
            continue
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        # Renamed into place, so that a process that imports meanwhile never sees half a module.
        partial = target.with_name(f".{target.name}.partial")
        partial.write_bytes(content)
        partial.replace(target)


def generate_command(*, check: bool) -> int:
    """Write `gen/python`, or with `check` compare it; return the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        generate(PROTO_DIR, Path(folder))
        expected = read_tree(Path(folder))
    return write_or_compare(GEN_DIR, expected, check=check)


def write_or_compare(root: Path, expected: dict[PurePosixPath, bytes], *, check: bool) -> int:
    """Write the generated files below `root`, or with `check` compare them; the exit status."""
    name = f"{root.parent.name}/{root.name}"
    changes = differences(expected, read_tree(root))
    if check and changes:
        print(f"{name} is stale; run `make proto` and commit the result:", *changes, sep="\n  ")
        return 1
    if not check:
        replace_tree(root, expected)
    print(f"{name}: {len(expected)} files, {len(changes)} changed")
    return 0


def buf(command: str, *arguments: str | os.PathLike[str]) -> None:
    """Run buf on the image of our contracts; `buf.yaml` keeps imported files out of its verdict."""
    image = BUILD_DIR / "image.binpb"
    write_image(PROTO_DIR, image, source_info=True, flags=["--fatal_warnings"])
    run([script("buf"), command, image, *arguments])


def breaking_command() -> None:
    """Compare with the baseline; there is nothing to break before the first one is committed."""
    if not BASELINE.exists():
        print("proto/baseline.binpb does not exist yet; nothing to compare with")
        return
    buf("breaking", "--against", BASELINE)


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.proto", description=__doc__)
    commands = ("generate", "lint", "breaking", "baseline", "bundle")
    parser.add_argument("command", nargs="?", choices=commands, default="generate")
    parser.add_argument("--check", action="store_true", help="compare gen/python, do not write it")
    options = parser.parse_args()
    try:
        match options.command:
            case "lint":
                buf("lint")
            case "breaking":
                breaking_command()
            case "baseline":
                write_image(PROTO_DIR, BASELINE, source_info=False)
            case "bundle":
                write_image(PROTO_DIR, BUNDLE, source_info=True)
                print(BUNDLE.relative_to(REPO))
            case _:
                return generate_command(check=options.check)
    except ContractError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
