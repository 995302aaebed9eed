"""Comments of the contracts, by the full name of what they describe."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

from tools.proto import PROTO_DIR, write_image

_MESSAGE, _ENUM, _SERVICE = 4, 5, 6
_NESTED, _FIELD, _NESTED_ENUM, _VALUE, _METHOD = 3, 2, 4, 2, 2


def read() -> dict[str, str]:
    """Full name (`counterfoil.ledger.v1.Session.title`) → its comment, on one line."""
    with tempfile.TemporaryDirectory() as folder:
        files = write_image(PROTO_DIR, Path(folder) / "image.binpb", source_info=True).file
    found: dict[str, str] = {}
    for file in files:
        names = dict(_names(file))
        for location in file.source_code_info.location:
            name = names.get(tuple(location.path))
            if name and location.leading_comments:
                found[name] = " ".join(location.leading_comments.split())
    return found


def _names(file: FileDescriptorProto) -> Iterator[tuple[tuple[int, ...], str]]:
    for index, message in enumerate(file.message_type):
        yield from _message((_MESSAGE, index), f"{file.package}.{message.name}", message)
    for index, enum in enumerate(file.enum_type):
        yield (_ENUM, index), f"{file.package}.{enum.name}"
    for index, service in enumerate(file.service):
        name = f"{file.package}.{service.name}"
        yield (_SERVICE, index), name
        for at, method in enumerate(service.method):
            yield (_SERVICE, index, _METHOD, at), f"{name}.{method.name}"


def _message(
    path: tuple[int, ...], name: str, message: DescriptorProto
) -> Iterator[tuple[tuple[int, ...], str]]:
    yield path, name
    for index, field in enumerate(message.field):
        yield (*path, _FIELD, index), f"{name}.{field.name}"
    for index, nested in enumerate(message.nested_type):
        yield from _message((*path, _NESTED, index), f"{name}.{nested.name}", nested)
    for index, enum in enumerate(message.enum_type):
        yield (*path, _NESTED_ENUM, index), f"{name}.{enum.name}"
