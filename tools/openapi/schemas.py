"""Messages as JSON Schema, as `foundation.json` reads and writes them."""

from typing import Any

from counterfoil.ledger.v1 import events_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from foundation.json import enum_literals
from foundation.json.shape import (
    TIMESTAMP,
    UNION_KEY,
    Member,
    Shape,
    descriptor_of,
    is_map,
    map_value,
    message_of,
    shape_of,
)
from tools.openapi import limits

Schema = dict[str, Any]

EVENT = descriptor_of(events_pb2.Event)
PREVIEW = descriptor_of(events_pb2.PreviewEvent)

_RAW = {
    "counterfoil.ledger.v1.ListEventsResponse.data": EVENT,
    "counterfoil.ledger.v1.SubmitEventsResponse.data": EVENT,
}
"""Raw JSON that is a rendered message. The other raw fields hold any JSON."""

_SCHEMA_FIELD = "input_schema"


class Components:
    """The schemas of one document, each added when it is first referred to."""

    def __init__(self, comments: dict[str, str]) -> None:
        self._comments = comments
        self.schemas: dict[str, Schema] = {}

    def refer(self, descriptor: Descriptor, *, sent: bool) -> Schema:
        """A reference to a message as clients send it, or as they get it."""
        name = _name(descriptor, sent=sent)
        if name not in self.schemas:
            self.schemas[name] = {}  # recursive types refer to it
            self.schemas[name] = self._message(name, descriptor, sent=sent)
        return {"$ref": f"#/components/schemas/{name}"}

    def value(self, member: Member, *, sent: bool) -> Schema:
        """The schema of a member, with what its comment says."""
        schema = self._value(member, sent=sent)
        if member.null:
            schema = _nullable(schema)
        comment = self._comments.get(member.field.full_name)
        return {**schema, "description": comment} if comment else schema

    def comment(self, name: str) -> str:
        """The comment of something in the contracts."""
        return self._comments.get(name, "")

    def _message(self, name: str, descriptor: Descriptor, *, sent: bool) -> Schema:
        shape = shape_of(descriptor)
        if shape.list_of is not None:
            return self.value(shape.list_of, sent=sent)
        schema = (
            self._union(name, shape, sent=sent)
            if shape.union
            else self._object(shape.consts, shape.members, sent=sent)
        )
        comment = self._comments.get(descriptor.full_name)
        if comment:
            schema["description"] = comment
        if sent and shape.shorthand:
            text = {"type": "string", "description": f"Stands for `{'.'.join(shape.shorthand)}`."}
            return {"anyOf": [text, schema]}
        return schema

    def _union(self, name: str, shape: Shape, *, sent: bool) -> Schema:
        mapping: dict[str, str] = {}
        for tag, field in shape.variants.items():
            variant = shape_of(message_of(field))
            members = (*shape.head, *variant.members, *shape.tail)
            consts = ((UNION_KEY, tag), *variant.consts)
            schema = self._object(consts, members, sent=sent)
            comment = self._comments.get(field.full_name)
            if comment:
                schema["description"] = comment
            if UNION_KEY not in schema["required"]:
                schema["required"].insert(0, UNION_KEY)
            self.schemas[f"{name}.{tag}"] = schema
            mapping[tag] = f"#/components/schemas/{name}.{tag}"
        return {
            "oneOf": [{"$ref": ref} for ref in mapping.values()],
            "discriminator": {"propertyName": UNION_KEY, "mapping": mapping},
        }

    def _object(
        self, consts: tuple[tuple[str, str], ...], members: tuple[Member, ...], *, sent: bool
    ) -> Schema:
        properties: Schema = {name: {"type": "string", "const": value} for name, value in consts}
        required: list[str] = [] if sent else [name for name, _ in consts]
        for member in members:
            if member.server_bound or (sent and member.output_only):
                continue
            properties[member.key] = self.value(member, sent=sent)
            if limits.is_required(member.field) if sent else _always(member):
                required.append(member.key)
        schema: Schema = {"type": "object", "properties": properties, "required": required}
        if sent:
            schema["additionalProperties"] = False
        return schema

    def _value(self, member: Member, *, sent: bool) -> Schema:
        field = member.field
        rules = limits.rules_of(field)
        if member.patch:
            return {"type": "object", "additionalProperties": {"type": ["string", "null"]}}
        if is_map(field):
            value = map_value(field)
            inner = self._single(value, member, rules.map.values, sent=sent)
            found = {"type": "object", "additionalProperties": inner}
            return {**found, **limits.object_of_pairs(rules)}
        if field.is_repeated:
            items = self._single(field, member, rules.repeated.items, sent=sent)
            return {"type": "array", "items": items, **limits.array(rules)}
        return self._single(field, member, rules, sent=sent)

    def _single(self, field: FieldDescriptor, member: Member, rules: Any, *, sent: bool) -> Schema:
        if member.raw:
            return self._raw(field)
        if field.message_type is not None:
            if field.message_type.full_name == TIMESTAMP:
                return {"type": "string", "format": "date-time"}
            return self.refer(field.message_type, sent=sent)
        return scalar(field, rules)

    def _raw(self, field: FieldDescriptor) -> Schema:
        rendered = _RAW.get(field.full_name)
        if rendered is not None:
            return self.refer(rendered, sent=False)
        return {"type": "object"} if field.name == _SCHEMA_FIELD else {}


def scalar(field: FieldDescriptor, rules: Any) -> Schema:
    """The schema of a scalar under these rules."""
    if field.enum_type is not None:
        return {"type": "string", "enum": list(enum_literals(field.enum_type).values())}
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_BOOL:
            found: Schema = {"type": "boolean"}
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            found = {"type": "string", "contentEncoding": "base64"}
        case FieldDescriptor.CPPTYPE_STRING:
            found = {"type": "string"}
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            found = {"type": "number"}
        case _:
            found = {"type": "integer"}
            if field.cpp_type in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64):
                found["format"] = "int64"
    return {**found, **limits.keywords(rules)}


def _always(member: Member) -> bool:
    """Whether an answer always has the member."""
    field = member.field
    if member.null:
        return not (member.absent and not field.has_presence)
    if member.absent:
        return False
    return not field.has_presence and not (member.raw and not field.is_repeated)


def _nullable(schema: Schema) -> Schema:
    if isinstance(schema.get("type"), str) and "enum" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]} if schema else schema


def _name(descriptor: Descriptor, *, sent: bool) -> str:
    name = descriptor.name
    return f"{name}Input" if sent and not name.endswith("Request") else name
