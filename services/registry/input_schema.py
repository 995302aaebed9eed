"""Decides whether a JSON Schema may describe a custom tool's input. Pure.

The rules are the provider's: what it would refuse with every request is refused when it is saved.
"""

import re
from typing import Any, cast

from foundation.errors import invalid
from foundation.json import InvalidJson, parse

_PROPERTY_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NOT_AT_THE_TOP = ("oneOf", "anyOf", "allOf")


def check_input_schema(raw: bytes, path: str) -> None:
    """Raise INVALID_FIELD, with a JSON path below `path`, unless the schema may be used."""
    try:
        schema: Any = parse(raw)
    except InvalidJson as error:
        where = f"{path}.{error.path}" if error.path else path
        raise invalid(where, error.message) from None
    if not isinstance(schema, dict):
        raise invalid(path, "must be a JSON object")
    members = cast("dict[str, Any]", schema)
    if members.get("type") != "object":
        raise invalid(f"{path}.type", 'must be "object"')
    for key in _NOT_AT_THE_TOP:
        if key in members:
            raise invalid(f"{path}.{key}", "is not allowed at the top of an input schema")
    _check_properties(members, path)
    _refuse_references(members, path)


def _check_properties(members: dict[str, Any], path: str) -> None:
    properties: Any = members.get("properties")
    properties = {} if properties is None else properties
    if not isinstance(properties, dict):
        raise invalid(f"{path}.properties", "must be an object")
    for name in cast("dict[str, Any]", properties):
        if not _PROPERTY_NAME.fullmatch(name):
            raise invalid(
                f"{path}.properties",
                f"property names are 1 to 64 of letters, digits, _ . and -, got {name[:80]!r}",
            )
    required: Any = members.get("required")
    required = [] if required is None else required
    names = cast("list[Any]", required) if isinstance(required, list) else [None]
    if not all(isinstance(name, str) for name in names):
        raise invalid(f"{path}.required", "must be an array of property names")


def _refuse_references(value: Any, path: str) -> None:
    """No `$ref` at any depth (the parser has bounded it): the provider does not resolve them."""
    if isinstance(value, dict):
        for key, member in cast("dict[str, Any]", value).items():
            where = f"{path}.{key[:80]}"
            if key == "$ref":
                raise invalid(where, "references are not supported; write the schema out")
            _refuse_references(member, where)
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            _refuse_references(item, f"{path}.{index}")
