"""Compiled plans that turn a message into values that one C encoder renders at once."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from foundation.json import scalars
from foundation.json.plans import Plans
from foundation.json.shape import (
    TIMESTAMP,
    UNION_KEY,
    Member,
    Shape,
    ShapeError,
    is_map,
    map_value,
    shape_of,
)

Write = Callable[[Any], Any]


class Step(NamedTuple):
    """One member of the output; a literal has its text in place of a field name."""

    key: str
    name: str
    literal: bool
    presence: bool
    skip_empty: bool
    null: bool
    write: Write | None


class MessageWriter:
    """Renders one message type; recursive types share their writers."""

    __slots__ = ("_steps",)

    def compile(self, shape: Shape) -> None:
        """Fill the plan; separate from creation, so that recursive types find this writer."""
        self._steps = _with_literals(_steps(shape.members), shape.consts)

    def write(self, message: Any) -> Any:
        """Return the message as values for the encoder; raises ValueError for what has no JSON."""
        out: dict[str, Any] = {}
        _run(self._steps, message, out)
        return out


class UnionWriter(MessageWriter):
    """Renders a flattened union."""

    __slots__ = ("_name", "_oneof", "_tail", "_variants")

    def compile(self, shape: Shape) -> None:
        """Fill the plan: for each variant what stands before it and its own members."""
        self._name = shape.descriptor.full_name
        self._oneof = shape.union
        self._tail = _steps(shape.tail)
        self._variants: dict[str, tuple[list[Step], list[Step]]] = {}
        for tag, field in shape.variants.items():
            inner = shape_of(field.message_type)
            literals = ((UNION_KEY, tag), *shape.consts, *inner.consts)
            head = _with_literals(_steps(shape.head), literals)
            self._variants[field.name] = head, _steps(inner.members)

    def write(self, message: Any) -> Any:
        """Return the union as values for the encoder; raises ValueError without a variant."""
        variant = message.WhichOneof(self._oneof)
        if variant is None:
            raise ValueError(f"{self._name} has no variant")
        head, steps = self._variants[variant]
        out: dict[str, Any] = {}
        _run(head, message, out)
        _run(steps, getattr(message, variant), out)
        _run(self._tail, message, out)
        return out


class ListWriter(MessageWriter):
    """Renders a message with one repeated field as the bare array."""

    __slots__ = ("_name", "_write")

    def compile(self, shape: Shape) -> None:
        """Fill the plan with the writer of the one field."""
        assert shape.list_of is not None
        self._name = shape.list_of.name
        self._write = _field_writer(shape.list_of)

    def write(self, message: Any) -> Any:
        """Return the array as values for the encoder."""
        value = getattr(message, self._name)
        return value if self._write is None else self._write(value)


def _create(shape: Shape) -> MessageWriter:
    return UnionWriter() if shape.union else ListWriter() if shape.list_of else MessageWriter()


_writers = Plans(_create)


def writer_for(descriptor: Descriptor) -> MessageWriter:
    """Return the plan of a message type, compiled on first use; raises ShapeError."""
    return _writers.get(descriptor)


def _run(steps: list[Step], message: Any, out: dict[str, Any]) -> None:
    for key, name, literal, presence, skip_empty, null, write in steps:
        if literal:
            out[key] = name
            continue
        if presence and not message.HasField(name):
            if null:
                out[key] = None
            continue
        value = getattr(message, name)
        if skip_empty and not value:
            if null:
                out[key] = None
            continue
        out[key] = value if write is None else write(value)


def _steps(members: tuple[Member, ...]) -> list[Step]:
    return [_step(member) for member in members if not member.server_bound]


def _step(member: Member) -> Step:
    field = member.field
    literal_free = field.enum_type is not None and 0 not in scalars.enum_literals(field.enum_type)
    # An empty raw value and an unspecified enum have no text: they count as unset.
    unset_when_empty = not field.is_repeated and (member.raw or literal_free)
    presence = field.has_presence and not unset_when_empty
    return Step(
        key=member.key,
        name=member.name,
        literal=False,
        presence=presence,
        skip_empty=unset_when_empty or (member.absent and not presence),
        null=member.null and not member.absent and (presence or unset_when_empty),
        write=_field_writer(member),
    )


def _with_literals(steps: list[Step], literals: tuple[tuple[str, str], ...]) -> list[Step]:
    """Insert literal members first, or directly after `id` where there is one."""
    keys = [step.key for step in steps]
    at = keys.index("id") + 1 if "id" in keys else 0
    inserted = [Step(key, text, True, False, False, False, None) for key, text in literals]
    return [*steps[:at], *inserted, *steps[at:]]


def _field_writer(member: Member) -> Write | None:
    field = member.field
    if member.patch:
        return _write_patch
    if is_map(field):
        return _map_writer(_value_writer(map_value(field), member.raw))
    write = _value_writer(field, member.raw)
    if field.is_repeated:
        return list if write is None else _list_writer(write)
    return write


def _value_writer(field: FieldDescriptor, raw: bool) -> Write | None:
    if raw:
        if field.type != FieldDescriptor.TYPE_BYTES:
            raise ShapeError(f"{field.full_name}: json_raw is for bytes")
        return _write_raw
    if field.message_type is None:
        return scalars.writer_of(field)
    if field.message_type.full_name == TIMESTAMP:
        return scalars.write_timestamp
    return writer_for(field.message_type).write


def _write_raw(value: Any) -> msgspec.Raw:
    if not value:
        raise ValueError("an item of raw JSON is empty")
    return msgspec.Raw(value)


def _write_patch(value: Any) -> dict[str, str | None]:
    changes: dict[str, str | None] = {key: value.set[key] for key in sorted(value.set)}
    return changes | dict.fromkeys(value.remove)


def _list_writer(write: Write) -> Write:
    return lambda values: [write(value) for value in values]


def _map_writer(write: Write | None) -> Write:
    # Sorted: the order of a proto map differs from process to process.
    if write is None:
        return lambda values: {key: values[key] for key in sorted(values)}
    return lambda values: {key: write(values[key]) for key in sorted(values)}
