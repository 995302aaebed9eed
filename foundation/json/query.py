"""Query strings to messages: parameters are texts, so each is read by the type of its field."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar

from counterfoil.types.v1 import annotations_pb2 as options
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from foundation.json import scalars
from foundation.json.errors import InvalidJson, clip
from foundation.json.shape import TIMESTAMP, descriptor_of, is_map, member_of, message_of

M = TypeVar("M", bound=Message)

_INTEGER = re.compile(r"-?[0-9]{1,20}")
_NUMBER = re.compile(r"-?[0-9]{1,300}(?:\.[0-9]{1,300})?")
_BOOLEANS = {"true": True, "false": False}
_FLOATS = (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT)
_TEXTS = (FieldDescriptor.CPPTYPE_STRING, FieldDescriptor.CPPTYPE_ENUM)


class Parameter(NamedTuple):
    """One query parameter and the field that it fills; `refused` ones may not be sent."""

    name: str
    repeated: bool
    refused: bool
    read: Callable[[str], Any]


def decode_query(
    message_type: type[M],
    pairs: Sequence[tuple[str, str]],
    ignore_unknown: bool = True,
    *,
    bound: Mapping[str, object] | None = None,
) -> M:
    """Build a message from percent-decoded query pairs.

    Arrays repeat their name, with or without `[]`; booleans are `true` and `false`. `bound` fills
    fields that the path or the metadata decides, which a query may not name. Raises InvalidJson,
    whose path is the parameter's name.
    """
    parameters = _parameters(descriptor_of(message_type))
    found: dict[str, Any] = {}
    for name, text in pairs:
        parameter = parameters.get(name)
        if parameter is None:
            if ignore_unknown:
                continue
            raise InvalidJson(clip(name), "unknown parameter")
        if parameter.refused:
            raise InvalidJson(name, "is set by the server and not accepted in a query")
        try:
            _add(found, parameter, parameter.read(text))
        except InvalidJson as error:
            raise error.under(name) from None
    bind(descriptor_of(message_type), found, bound or {})
    return message_type(**found)


def bind(descriptor: Descriptor, found: dict[str, Any], bound: Mapping[str, object]) -> None:
    """Put bound values into constructor arguments: field name (dotted for nested) → value.

    A text for a field of another type is read as in a query string. Raises InvalidJson.
    """
    for path, value in bound.items():
        *outer, last = path.split(".")
        target, message = found, descriptor
        for name in outer:
            target = target.setdefault(name, {})
            message = message_of(message.fields_by_name[name])
        field = message.fields_by_name[last]
        try:
            target[last] = read_text(field, value) if isinstance(value, str) else value
        except InvalidJson as error:
            raise error.under(path) from None


def read_text(field: FieldDescriptor, text: str) -> Any:
    """Read one text by the type of a scalar or timestamp field; raises InvalidJson."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidJson("", "is not valid UTF-8") from None
    if field.message_type is not None:
        return scalars.read_timestamp(text)
    read = scalars.reader_of(field)
    if field.cpp_type in _TEXTS:
        return read(text)
    return read(_literal(field, text))


def _literal(field: FieldDescriptor, text: str) -> bool | int | float:
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        if text not in _BOOLEANS:
            raise InvalidJson("", f"expected true or false, got {clip(text)!r}")
        return _BOOLEANS[text]
    if field.cpp_type in _FLOATS:
        if not _NUMBER.fullmatch(text):
            raise InvalidJson("", f"expected a number, got {clip(text)!r}")
        return float(text)
    if not _INTEGER.fullmatch(text):
        raise InvalidJson("", f"expected an integer, got {clip(text)!r}")
    return int(text)


def _add(found: dict[str, Any], parameter: Parameter, value: Any) -> None:
    if parameter.repeated:
        found.setdefault(parameter.name, []).append(value)
    elif parameter.name in found:
        raise InvalidJson("", "is given more than once")
    else:
        found[parameter.name] = value


@cache
def _parameters(descriptor: Descriptor) -> Mapping[str, Parameter]:
    parameters: dict[str, Parameter] = {}
    for field in descriptor.fields:
        member = member_of(field)
        refused = member.server_bound or member.output_only
        if not refused and not _is_queryable(field):
            continue
        name = field.GetOptions().Extensions[options.query_name] or member.key
        parameter = Parameter(field.name, field.is_repeated, refused, _text_reader(field))
        parameters[name] = parameter
        if field.is_repeated:
            base = name.removesuffix("[]")
            parameters[base] = parameters[f"{base}[]"] = parameter
    return parameters


def _text_reader(field: FieldDescriptor) -> Callable[[str], Any]:
    return lambda text: read_text(field, text)


def _is_queryable(field: FieldDescriptor) -> bool:
    if is_map(field):
        return False
    return field.message_type is None or field.message_type.full_name == TIMESTAMP
