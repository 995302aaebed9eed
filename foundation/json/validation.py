"""The limits of the contracts (`buf.validate`), reported with the paths that JSON clients see."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import protovalidate
from counterfoil.types.v1 import annotations_pb2 as options
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from foundation.json.limits import VALIDATOR, keeps_limits
from foundation.json.shape import (
    UNION_KEY,
    descriptor_of,
    is_map,
    map_value,
    member_of,
    message_of,
    real_oneofs,
    shape_of,
)

_PATCH = "counterfoil.types.v1.MetadataPatch"
_FOREIGN = "google.protobuf."
_NUMERIC = ("int32", "int64", "uint32", "uint64", "float", "double")


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken limit: the JSON path (empty for the whole message), and the limit with the value."""

    path: str
    message: str


class FieldPath(Protocol):
    """A protovalidate field path."""

    @property
    def elements(self) -> Iterable[Any]:
        """The steps: field name, and a subscript for arrays and maps."""
        ...


def validate(message: Message) -> list[Violation]:
    """Return every broken limit of a message; empty when it is valid."""
    if keeps_limits(message):
        return []
    descriptor = descriptor_of(message)
    return [_violation(descriptor, found) for found in VALIDATOR.collect_violations(message)]


def json_path(message_type: type[Message], field_path: FieldPath) -> str:
    """Return the JSON path of a protovalidate field path: `events.0.content.1.text`."""
    return ".".join(_walk(descriptor_of(message_type), field_path.elements))


def _violation(descriptor: Descriptor, found: protovalidate.Violation) -> Violation:
    proto = found.proto
    elements = list(proto.field.elements) if proto.field else []
    message = _with_value(proto.rule_id, proto.message, found.field_value)
    if elements and not elements[-1].field_number and proto.rule_id == "required":
        message = _required_oneof(descriptor, elements)
    if proto.for_key:
        message = f"key {message}"
    return Violation(".".join(_walk(descriptor, elements)), message)


def _with_value(rule: str, message: str, value: Any) -> str:
    """Add what was given: a count for sizes, the number itself for ranges."""
    family, _, name = rule.partition(".")
    if family in _NUMERIC:
        return f"{message}, got {value}"
    if name.endswith("_bytes"):
        return f"{message}, got {len(value.encode())}"
    if name.endswith(("len", "_items", "_pairs")):
        return f"{message}, got {len(value)}"
    return message


def _required_oneof(descriptor: Descriptor, elements: list[Any]) -> str:
    for element in elements[:-1]:
        descriptor = message_of(descriptor.fields_by_name[element.field_name])
    if shape_of(descriptor).union:
        return "is required"
    (oneof,) = (one for one in real_oneofs(descriptor) if one.name == elements[-1].field_name)
    return f"one of {', '.join(member_of(field).key for field in oneof.fields)} is required"


def _walk(descriptor: Descriptor | None, elements: Iterable[Any]) -> Iterable[str]:
    for element in elements:
        field = None if descriptor is None else descriptor.fields_by_name.get(element.field_name)
        if descriptor is None or field is None:
            # The path of a required oneof ends in the oneof's name, which JSON does not have.
            if descriptor is not None and shape_of(descriptor).union:
                yield UNION_KEY
            return
        if not _is_invisible(descriptor, field):
            yield _name(field)
        if element.subscript is not None and field.name != "remove":
            yield str(element.subscript.value)
        descriptor = (map_value(field) if is_map(field) else field).message_type


def _is_invisible(descriptor: Descriptor, field: FieldDescriptor) -> bool:
    """Tell whether JSON flattens this step away: a variant, a bare array, the halves of a patch."""
    if descriptor.full_name == _PATCH:
        return True
    if descriptor.full_name.startswith(_FOREIGN):
        return False
    shape = shape_of(descriptor)
    return shape.list_of is not None or field in shape.variants.values()


def _name(field: FieldDescriptor) -> str:
    return field.GetOptions().Extensions[options.query_name] or member_of(field).key
