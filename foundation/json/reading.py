"""Compiled plans that turn parsed JSON into constructor arguments of a message.

A plan is built once per descriptor. The result is plain dicts, so that one constructor call builds
the whole tree in C. Where a message holds raw JSON, its bytes travel along and are sliced there.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from foundation.json import scalars
from foundation.json.errors import InvalidJson, clip
from foundation.json.exact import RawJson, items, members
from foundation.json.plans import Plans
from foundation.json.shape import (
    FIELD_MASK,
    TIMESTAMP,
    UNION_KEY,
    Member,
    Shape,
    ShapeError,
    contains_raw,
    is_map,
    map_value,
    message_of,
    real_oneofs,
    shape_of,
)

Read = Callable[[Any, RawJson], Any]
"""Takes a parsed value and, only where raw JSON is inside, its exact bytes."""


class ReadMember(NamedTuple):
    """One JSON member: the field it fills (none for a literal), how, and whether null unsets it."""

    name: str
    read: Read
    null: bool


Table = dict[str, ReadMember]


class Variant(NamedTuple):
    """One variant of a union: its field, its members, whether it holds raw JSON, its mask."""

    name: str
    table: Table
    sliced: bool
    mask: str


class MessageReader:
    """Reads the JSON object of one message type; recursive types share their readers."""

    __slots__ = ("_mask", "_oneofs", "_shorthand", "_sliced", "_table")

    def compile(self, shape: Shape) -> None:
        """Fill the plan; separate from creation, so that recursive types find this reader."""
        self._table = _table(shape)
        self._sliced = contains_raw(shape.descriptor)
        self._mask = _mask(shape)
        self._shorthand = _shorthand(shape)
        oneofs = [oneof.fields for oneof in real_oneofs(shape.descriptor)]
        self._oneofs = [[field.name for field in fields] for fields in oneofs]

    def read(self, value: Any, raw: RawJson) -> dict[str, Any]:
        """Return the constructor arguments; raises InvalidJson with the path inside this object."""
        if value.__class__ is not dict:
            return self._instead(value)
        fields: dict[str, Any] = value
        slices = members(raw) if self._sliced else None
        table = self._table
        found: dict[str, Any] = {}
        for key, item in fields.items():
            member = table.get(key)
            if member is None:
                raise InvalidJson(clip(key), "unknown field")
            name, read, null = member
            if item is None and null:
                continue
            try:
                content = read(item, b"" if slices is None else slices[key])
            except InvalidJson as error:
                raise error.under(key) from None
            if name:
                found[name] = content
        for names in self._oneofs:
            _at_most_one(names, found)
        if self._mask:
            found[self._mask] = {"paths": self.present(fields)}
        return found

    def present(self, value: dict[str, Any]) -> list[str]:
        """Return the fields that the keys of an accepted object name, nulls included."""
        return [self._table[key].name for key in value if self._table[key].name]

    def _instead(self, value: Any) -> dict[str, Any]:
        if type(value) is str and self._shorthand is not None:
            return self._shorthand(value)
        wanted = "an object" if self._shorthand is None else "an object or a string"
        raise scalars.mismatch(wanted, value)


class UnionReader(MessageReader):
    """Reads a flattened union: `type` chooses whose members stand beside the common ones."""

    __slots__ = ("_choices", "_variants")

    def compile(self, shape: Shape) -> None:
        """Fill the plan: the common members, and a table for each value of `type`."""
        self._table = _table(shape)
        self._shorthand = _shorthand(shape)
        common_sliced = any(member.raw or _needs_slice(member.field) for member in shape.members)
        self._variants: dict[str, Variant] = {}
        for tag, field in shape.variants.items():
            table = _table(shape_of(message_of(field)))
            if clash := table.keys() & self._table.keys() or {UNION_KEY} & {*table, *self._table}:
                raise ShapeError(f"{field.full_name}: two members are named {sorted(clash)}")
            sliced = common_sliced or contains_raw(message_of(field))
            mask = _mask(shape_of(message_of(field)))
            self._variants[tag] = Variant(field.name, table, sliced, mask)
        self._choices = ", ".join(self._variants)

    def read(self, value: Any, raw: RawJson) -> dict[str, Any]:
        """Return the constructor arguments of the union, its variant inside."""
        if value.__class__ is not dict:
            return self._instead(value)
        fields: dict[str, Any] = value
        variant, table, sliced, mask = self._variant(fields)
        slices = members(raw) if sliced else None
        common = self._table
        inner: dict[str, Any] = {}
        outer: dict[str, Any] = {variant: inner}
        for key, item in fields.items():
            if key == UNION_KEY:
                continue
            target, member = inner, table.get(key)
            if member is None:
                target, member = outer, common.get(key)
                if member is None:
                    raise InvalidJson(clip(key), "unknown field")
            name, read, null = member
            if item is None and null:
                continue
            try:
                content = read(item, b"" if slices is None else slices[key])
            except InvalidJson as error:
                raise error.under(key) from None
            if name:
                target[name] = content
        if mask:
            inner[mask] = {"paths": [table[key].name for key in fields if _fills(table, key)]}
        return outer

    def present(self, value: dict[str, Any]) -> list[str]:
        """Return the fields that the keys name; those of the variant behind its name."""
        variant, table, _, _ = self._variant(value)
        own = [f"{variant}.{table[key].name}" for key in value if _fills(table, key)]
        return own + [self._table[key].name for key in value if key in self._table]

    def _variant(self, value: dict[str, Any]) -> "Variant":
        tag = value.get(UNION_KEY)
        try:
            return self._variants[tag]  # pyright: ignore[reportArgumentType] # a wrong key is a miss
        except (KeyError, TypeError):
            raise self._unknown_tag(value, tag) from None

    def _unknown_tag(self, value: dict[str, Any], tag: Any) -> InvalidJson:
        if UNION_KEY not in value:
            return InvalidJson(UNION_KEY, f"is required: one of {self._choices}")
        if type(tag) is not str:
            return scalars.mismatch("a string", tag).under(UNION_KEY)
        return InvalidJson(UNION_KEY, f"expected one of {self._choices}, got {clip(tag)!r}")


class ListReader(MessageReader):
    """Reads the bare array that stands for a message with one repeated field."""

    __slots__ = ("_name", "_read")

    def compile(self, shape: Shape) -> None:
        """Fill the plan with the reader of the one field."""
        assert shape.list_of is not None
        self._name = shape.list_of.name
        self._read = _field_reader(shape.list_of)

    def read(self, value: Any, raw: RawJson) -> dict[str, Any]:
        """Return the constructor arguments of the message."""
        return {self._name: self._read(value, raw)}

    def present(self, value: Any) -> list[str]:
        """Return the one field."""
        return [self._name]


def _create(shape: Shape) -> MessageReader:
    return UnionReader() if shape.union else ListReader() if shape.list_of else MessageReader()


_readers = Plans(_create)


def reader_for(descriptor: Descriptor) -> MessageReader:
    """Return the plan of a message type, compiled on first use; raises ShapeError."""
    return _readers.get(descriptor)


def _table(shape: Shape) -> Table:
    table: Table = {}
    for name, value in shape.consts:
        table[name] = ReadMember("", _const_reader(value), False)
    for member in shape.members:
        if member.key in table:
            raise ShapeError(f"{member.field.full_name}: two members are named {member.key}")
        table[member.key] = ReadMember(member.name, _field_reader(member), _is_nullable(member))
    return table


def _fills(table: Table, key: str) -> bool:
    return key in table and bool(table[key].name)


def _mask(shape: Shape) -> str:
    """The FieldMask of a message, which its reader fills; empty for none."""
    bound = [member.field for member in shape.members if member.server_bound]
    for field in bound:
        if field.message_type is not None and field.message_type.full_name == FIELD_MASK:
            return field.name
    return ""


def _is_nullable(member: Member) -> bool:
    return member.null and not member.output_only and not member.server_bound


def _const_reader(literal: str) -> Read:
    def read(value: Any, raw: RawJson) -> None:
        if value != literal:
            got = repr(clip(value)) if type(value) is str else scalars.kind(value)
            raise InvalidJson("", f"expected {literal!r}, got {got}")

    return read


def _refuser(message: str) -> Read:
    def read(value: Any, raw: RawJson) -> None:
        raise InvalidJson("", message)

    return read


def _field_reader(member: Member) -> Read:
    if member.server_bound:
        return _refuser("is set by the server and not accepted in a body")
    if member.output_only:
        return _refuser("is output only and not accepted in a request")
    field = member.field
    if member.patch:
        return _read_patch
    if is_map(field):
        value = map_value(field)
        return _map_reader(_value_reader(value, member.raw), member.raw or _needs_slice(value))
    read = _value_reader(field, member.raw)
    if field.is_repeated:
        return _list_reader(read, member.raw or _needs_slice(field))
    return read


def _needs_slice(field: FieldDescriptor) -> bool:
    return field.message_type is not None and contains_raw(field.message_type)


def _value_reader(field: FieldDescriptor, raw: bool) -> Read:
    if raw:
        if field.type != FieldDescriptor.TYPE_BYTES:
            raise ShapeError(f"{field.full_name}: json_raw is for bytes")
        return _read_raw
    if field.message_type is None:
        return _ignoring_bytes(scalars.reader_of(field))
    if field.message_type.full_name == TIMESTAMP:
        return _ignoring_bytes(scalars.read_timestamp)
    return reader_for(field.message_type).read


def _ignoring_bytes(read: scalars.Reader) -> Read:
    return lambda value, raw: read(value)


def _read_raw(value: Any, raw: RawJson) -> bytes:
    if value is None:
        raise InvalidJson("", "must not be null")
    return bytes(raw)


def _read_patch(value: Any, raw: RawJson) -> dict[str, Any]:
    """Return the arguments of a MetadataPatch."""
    if value.__class__ is not dict:
        raise scalars.mismatch("an object", value)
    fields: dict[str, Any] = value
    changes: dict[str, str] = {}
    removed: list[str] = []
    for key, item in fields.items():
        if item is None:
            removed.append(key)
        elif type(item) is str:
            changes[key] = item
        else:
            raise scalars.mismatch("a string or null", item).under(key)
    return {"set": changes, "remove": removed}


def _list_reader(read: Read, sliced: bool) -> Read:
    def read_list(value: Any, raw: RawJson) -> list[Any]:
        if value.__class__ is not list:
            raise scalars.mismatch("an array", value)
        elements: list[Any] = value
        slices = items(raw) if sliced else None
        found: list[Any] = []
        try:
            for item in elements:
                found.append(read(item, b"" if slices is None else slices[len(found)]))
        except InvalidJson as error:
            raise error.under(len(found)) from None
        return found

    return read_list


def _map_reader(read: Read, sliced: bool) -> Read:
    def read_map(value: Any, raw: RawJson) -> dict[str, Any]:
        if value.__class__ is not dict:
            raise scalars.mismatch("an object", value)
        fields: dict[str, Any] = value
        slices = members(raw) if sliced else None
        found: dict[str, Any] = {}
        for key, item in fields.items():
            try:
                found[key] = read(item, b"" if slices is None else slices[key])
            except InvalidJson as error:
                raise error.under(key) from None
        return found

    return read_map


def _at_most_one(names: list[str], found: dict[str, Any]) -> None:
    given = [name for name in names if name in found]
    if len(given) > 1:
        raise InvalidJson(given[1], f"cannot be given together with {given[0]}")


def _shorthand(shape: Shape) -> Callable[[str], dict[str, Any]] | None:
    if not shape.shorthand:
        return None
    fields: list[FieldDescriptor] = []
    message = shape.descriptor
    for name in shape.shorthand:
        field = message.fields_by_name.get(name) if message is not None else None
        if field is None:
            raise ShapeError(f"{shape.descriptor.full_name}: json_shorthand names no field")
        fields.append(field)
        message = field.message_type
    read = scalars.reader_of(fields[-1])
    *outer, last = shape.shorthand

    def expand(text: str) -> dict[str, Any]:
        found: dict[str, Any] = {last: read(text)}
        for name in reversed(outer):
            found = {name: found}
        return found

    return expand
