"""Leaf values between JSON and proto fields, each checked strictly: nothing is coerced."""

import base64
import binascii
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache

from counterfoil.types.v1 import annotations_pb2 as options
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.timestamp_pb2 import Timestamp

from foundation.json.errors import InvalidJson, clip

Reader = Callable[[object], object]
Writer = Callable[[object], object]

_INTEGER_BOUNDS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_FLOAT_MAX = 3.4028234663852886e38
_WORD_START = re.compile("(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_SECONDS_MIN, _SECONDS_MAX = -62_135_596_800, 253_402_300_799
_RFC3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]+))?"
    r"(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))"
)


def kind(value: object) -> str:
    """Name the JSON type of a parsed value, with its article, for error messages."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"


def mismatch(wanted: str, value: object) -> InvalidJson:
    """Return the error for a value of the wrong JSON type."""
    return InvalidJson("", f"expected {wanted}, got {kind(value)}")


def reader_of(field: FieldDescriptor) -> Reader:
    """Return what turns one parsed JSON value into the field's value, or raises InvalidJson."""
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return read_base64
        case FieldDescriptor.CPPTYPE_STRING:
            return read_string
        case FieldDescriptor.CPPTYPE_BOOL:
            return read_bool
        case FieldDescriptor.CPPTYPE_ENUM if field.enum_type is not None:
            return _enum_reader(field.enum_type)
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return _float_reader(field)
        case cpp_type:
            return _integer_reader(*_INTEGER_BOUNDS[cpp_type])


def writer_of(field: FieldDescriptor) -> Writer | None:
    """Return what turns the field's value into a JSON value; None if it already is one."""
    if field.type == FieldDescriptor.TYPE_BYTES:
        return write_base64
    if field.enum_type is not None:
        return _enum_writer(field.enum_type)
    if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return write_float
    return None


def read_string(value: object) -> str:
    """Return a JSON string."""
    if type(value) is not str:
        raise mismatch("a string", value)
    return value


def read_bool(value: object) -> bool:
    """Return a JSON boolean."""
    if type(value) is not bool:
        raise mismatch("a boolean", value)
    return value


def read_base64(value: object) -> bytes:
    """Return the bytes of standard, padded base64."""
    if type(value) is not str:
        raise mismatch("a base64 string", value)
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidJson("", "is not valid base64") from None


def write_base64(value: object) -> str:
    """Return bytes as standard, padded base64."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else ""


def _integer_reader(low: int, high: int) -> Reader:
    def read(value: object) -> int:
        if type(value) is int:
            if low <= value <= high:
                return value
            got = value if -(2**70) < value < 2**70 else "a much larger number"
            raise InvalidJson("", f"expected an integer from {low} to {high}, got {got}")
        if type(value) is float:
            raise InvalidJson("", "expected an integer, got a number with a fraction or exponent")
        raise mismatch("an integer", value)

    return read


def _float_reader(field: FieldDescriptor) -> Reader:
    high = _FLOAT_MAX if field.type == FieldDescriptor.TYPE_FLOAT else math.inf

    def read(value: object) -> float:
        if type(value) is not float and type(value) is not int:
            raise mismatch("a number", value)
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isinf(number) or abs(number) > high:
            raise InvalidJson("", "is a number out of range")
        return number

    return read


def write_float(value: object) -> float:
    """Return a finite number; raises ValueError for the others, which JSON does not have."""
    if not isinstance(value, float) or not math.isfinite(value):
        raise ValueError(f"{value} is not a JSON number")
    return value


@cache
def enum_literals(enum: EnumDescriptor) -> Mapping[int, str]:
    """Return the JSON literal of each enum value but `_UNSPECIFIED`: number → literal."""
    prefix = _WORD_START.sub("_", enum.name).upper() + "_"
    literals: dict[int, str] = {}
    for value in enum.values:
        if value.number == 0 and value.name.endswith("_UNSPECIFIED"):
            continue
        own = value.GetOptions().Extensions[options.json_literal]
        literals[value.number] = own or value.name.removeprefix(prefix).lower()
    return literals


def _enum_reader(enum: EnumDescriptor) -> Reader:
    numbers = {literal: number for number, literal in enum_literals(enum).items()}
    choices = ", ".join(numbers)

    def read(value: object) -> int:
        if type(value) is not str:
            raise mismatch("a string", value)
        number = numbers.get(value)
        if number is None:
            raise InvalidJson("", f"expected one of {choices}, got {clip(value)!r}")
        return number

    return read


def _enum_writer(enum: EnumDescriptor) -> Writer:
    literals = enum_literals(enum)

    def write(value: object) -> str:
        literal = literals.get(value) if isinstance(value, int) else None
        if literal is None:
            raise ValueError(f"{enum.full_name} has no literal for {value}")
        return literal

    return write


def read_timestamp(value: object) -> dict[str, int]:
    """Return seconds and nanoseconds of an RFC 3339 text; digits beyond nanoseconds are cut."""
    if type(value) is not str:
        raise mismatch("an RFC 3339 timestamp", value)
    found = _RFC3339.fullmatch(value)
    if not found:
        raise InvalidJson("", f"is not an RFC 3339 timestamp: {clip(value)!r}")
    day, time, fraction, sign, hours, minutes = found.groups()
    try:
        local = datetime.fromisoformat(f"{day}T{time}+00:00")
    except ValueError:
        raise InvalidJson("", f"is not a date and time that exists: {value!r}") from None
    seconds = (local - _EPOCH) // _SECOND
    if sign:
        offset = int(hours) * 3600 + int(minutes) * 60
        seconds += -offset if sign == "+" else offset
    if not _SECONDS_MIN <= seconds <= _SECONDS_MAX:
        raise InvalidJson("", "is a timestamp out of range")
    return {"seconds": seconds, "nanos": int((fraction or "0")[:9].ljust(9, "0"))}


def write_timestamp(value: Timestamp) -> str:
    """Return RFC 3339 in UTC with milliseconds, cut, never rounded: `2026-01-01T00:00:00.000Z`."""
    return f"{_second(value.seconds)}.{value.nanos // 1_000_000:03d}Z"


@lru_cache(maxsize=1024)
def _second(seconds: int) -> str:
    """Most times of an answer are of few seconds."""
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]
