"""The limits of a field (`buf.validate`) as JSON Schema keywords."""

from typing import Any

from buf.validate import validate_pb2
from google.protobuf.descriptor import FieldDescriptor

Schema = dict[str, Any]

_NUMBERS = ("int32", "int64", "uint32", "uint64", "float", "double")
_BOUNDS = {
    "gte": "minimum",
    "lte": "maximum",
    "gt": "exclusiveMinimum",
    "lt": "exclusiveMaximum",
}


def rules_of(field: FieldDescriptor) -> Any:
    """The rules of a field."""
    return field.GetOptions().Extensions[validate_pb2.field]


def keywords(rules: Any) -> Schema:
    """Keywords for one value under these rules."""
    match rules.WhichOneof("type"):
        case "string":
            return _string(rules.string)
        case kind if kind in _NUMBERS:
            own = getattr(rules, kind)
            return {
                word: getattr(own, name) for name, word in _BOUNDS.items() if own.HasField(name)
            }
        case _:
            return {}


def array(rules: Any) -> Schema:
    """Keywords for an array."""
    own = rules.repeated
    found = {"minItems": own.min_items, "maxItems": own.max_items, "uniqueItems": own.unique}
    return {word: value for word, value in found.items() if value}


def object_of_pairs(rules: Any) -> Schema:
    """Keywords for a map."""
    own = rules.map
    found: Schema = {"maxProperties": own.max_pairs} if own.max_pairs else {}
    if names := keywords(own.keys):
        found["propertyNames"] = names
    return found


def is_required(field: FieldDescriptor) -> bool:
    """Whether a request without the field is refused."""
    rules = rules_of(field)
    if rules.required:
        return True
    if field.has_presence:
        return False
    kind = rules.WhichOneof("type")
    own: Any = getattr(rules, kind) if kind else None
    match kind:
        case "string":
            listed = getattr(own, "in")
            return own.min_len > 0 or (bool(listed) and "" not in listed)
        case "bytes":
            return own.min_len > 0
        case "repeated":
            return own.min_items > 0
        case "enum":
            return 0 in own.not_in
        case _:
            return False


def _string(own: Any) -> Schema:
    found: Schema = {}
    if own.min_len:
        found["minLength"] = own.min_len
    if own.max_len or own.max_bytes:
        found["maxLength"] = own.max_len or own.max_bytes
    if own.pattern:
        found["pattern"] = own.pattern
    if listed := list(getattr(own, "in")):
        found["enum"] = listed
    return found
