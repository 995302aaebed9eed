"""The one JSON codec: strict input with JSON paths, exact raw values, limits, query strings."""

from foundation.json.codec import decode, encode, present, splice
from foundation.json.errors import InvalidJson
from foundation.json.exact import DEPTH_MAX, check, items, members, parse
from foundation.json.query import decode_query
from foundation.json.scalars import enum_literals, read_timestamp, write_timestamp
from foundation.json.shape import is_raw
from foundation.json.validation import Violation, json_path, validate

__all__ = [
    "DEPTH_MAX",
    "InvalidJson",
    "Violation",
    "check",
    "decode",
    "decode_query",
    "encode",
    "enum_literals",
    "is_raw",
    "items",
    "json_path",
    "members",
    "parse",
    "present",
    "read_timestamp",
    "splice",
    "validate",
    "write_timestamp",
]
