"""The JSON shape of a message, read from the options of its descriptor."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from counterfoil.types.v1 import annotations_pb2 as options
from google.protobuf.descriptor import Descriptor, FieldDescriptor, OneofDescriptor
from google.protobuf.message import Message

TIMESTAMP = "google.protobuf.Timestamp"
FIELD_MASK = "google.protobuf.FieldMask"
UNION_KEY = "type"
_FOREIGN = "google.protobuf."
_FOREIGN_WITH_JSON = (TIMESTAMP, "google.protobuf.Empty")


class ShapeError(TypeError):
    """A contract uses the JSON options in a way that has no JSON form: a mistake of ours."""


@dataclass(frozen=True, slots=True)
class Member:
    """One field as a member of a JSON object; the flags are the options of the same name."""

    field: FieldDescriptor
    key: str
    raw: bool
    null: bool
    patch: bool
    absent: bool
    output_only: bool
    server_bound: bool

    @property
    def name(self) -> str:
        """The field's name in the contract."""
        return self.field.name


@dataclass(frozen=True, slots=True)
class Shape:
    """How a message looks: `head`, the variant if there is a `union`, then `tail`."""

    descriptor: Descriptor
    head: tuple[Member, ...]
    tail: tuple[Member, ...]
    union: str
    variants: dict[str, FieldDescriptor]
    consts: tuple[tuple[str, str], ...]
    shorthand: tuple[str, ...]
    list_of: Member | None

    @property
    def members(self) -> tuple[Member, ...]:
        """All members but those of the variants."""
        return self.head + self.tail


def descriptor_of(message: Message | type[Message]) -> Descriptor:
    """Return the descriptor; the stubs of protobuf know two classes that are one."""
    found: Any = message.DESCRIPTOR
    return found


def message_of(field: FieldDescriptor) -> Descriptor:
    """Return the message type of a message field, for a map that of its values."""
    found = (map_value(field) if is_map(field) else field).message_type
    if found is None:
        raise ShapeError(f"{field.full_name} is not a message")
    return found


def is_map(field: FieldDescriptor) -> bool:
    """Tell whether the field is a map."""
    entry = field.message_type
    return entry is not None and entry.GetOptions().map_entry


def map_value(field: FieldDescriptor) -> FieldDescriptor:
    """Return the value field of a map, whose keys must be strings; raises ShapeError."""
    assert field.message_type is not None
    key, value = field.message_type.fields
    if key.type != FieldDescriptor.TYPE_STRING:
        raise ShapeError(f"{field.full_name}: only maps with string keys have a JSON form")
    return value


def real_oneofs(descriptor: Descriptor) -> list[OneofDescriptor]:
    """Return the oneofs that stand in the contract, without those of `optional` fields."""

    def is_synthetic(oneof: OneofDescriptor) -> bool:
        return len(oneof.fields) == 1 and oneof.name == f"_{oneof.fields[0].name}"

    return [oneof for oneof in descriptor.oneofs if not is_synthetic(oneof)]


def member_of(field: FieldDescriptor) -> Member:
    """Read the options of a field."""
    found = field.GetOptions().Extensions
    return Member(
        field=field,
        key=found[options.json_key] or field.name,
        raw=found[options.json_raw],
        null=found[options.json_null],
        patch=found[options.json_patch],
        absent=found[options.json_absent],
        output_only=found[options.output_only],
        server_bound=found[options.server_bound],
    )


@cache
def shape_of(descriptor: Descriptor) -> Shape:
    """Read the options of a message; raises ShapeError if they contradict each other."""
    found = descriptor.GetOptions().Extensions
    if descriptor.full_name.startswith(_FOREIGN) and descriptor.full_name not in _FOREIGN_WITH_JSON:
        raise ShapeError(f"{descriptor.full_name} has no JSON form here")
    fields = list(descriptor.fields)
    union, variants, head, tail = "", dict[str, FieldDescriptor](), fields, list[FieldDescriptor]()
    if found[options.json_union]:
        oneof = _union_oneof(descriptor)
        union, variants = oneof.name, _variants(oneof)
        first = oneof.fields[0].index
        common = [field for field in fields if field.containing_oneof is not oneof]
        head = [field for field in common if field.index < first]
        tail = [field for field in common if field.index > first]
    return Shape(
        descriptor=descriptor,
        head=tuple(map(member_of, head)),
        tail=tuple(map(member_of, tail)),
        union=union,
        variants=variants,
        consts=tuple((const.name, const.value) for const in found[options.json_const]),
        shorthand=tuple(filter(None, found[options.json_shorthand].split("."))),
        list_of=_list_of(descriptor, found[options.json_list_of]),
    )


def is_raw(field: FieldDescriptor) -> bool:
    """Tell whether the field is one value of raw JSON."""
    return bool(field.GetOptions().Extensions[options.json_raw]) and not field.is_repeated


def contains_raw(descriptor: Descriptor) -> bool:
    """Tell whether a field of the message, at any depth, holds raw JSON."""
    seen: set[Descriptor] = set()
    waiting = [descriptor]
    while waiting:
        message = waiting.pop()
        if message in seen:
            continue
        seen.add(message)
        for field in message.fields:
            if field.GetOptions().Extensions[options.json_raw]:
                return True
            if field.message_type is not None:
                waiting.append(field.message_type)
    return False


def _union_oneof(descriptor: Descriptor) -> OneofDescriptor:
    oneofs = real_oneofs(descriptor)
    if len(oneofs) != 1:
        raise ShapeError(f"{descriptor.full_name}: a json_union has exactly one oneof")
    return oneofs[0]


def _variants(oneof: OneofDescriptor) -> dict[str, FieldDescriptor]:
    variants: dict[str, FieldDescriptor] = {}
    for field in oneof.fields:
        if field.message_type is None:
            raise ShapeError(f"{field.full_name}: a variant of a json_union is a message")
        inner = shape_of(message_of(field))
        if inner.union or inner.list_of:
            raise ShapeError(f"{field.full_name}: a variant of a json_union is a plain object")
        tag = field.GetOptions().Extensions[options.json_tag] or field.name
        if tag in variants:
            raise ShapeError(f"{field.full_name}: two variants have the json_tag {tag}")
        variants[tag] = field
    return variants


def _list_of(descriptor: Descriptor, name: str) -> Member | None:
    if not name:
        return None
    if [field.name for field in descriptor.fields] != [name]:
        raise ShapeError(f"{descriptor.full_name}: json_list_of names the one field of a message")
    field = descriptor.fields[0]
    if not field.is_repeated or is_map(field):
        raise ShapeError(f"{field.full_name}: json_list_of names a repeated field")
    return member_of(field)
