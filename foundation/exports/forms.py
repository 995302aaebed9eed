"""How the values of a row stand in its line, and how they are read again.

Bytes that are JSON stand there as they are: `1.10`, `1e400` and the order of keys survive. Bytes
that could not, because they are no JSON, or hold a line's end, stand as base64 under another name.
"""

import base64
import binascii
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from foundation.digests import SALT_BYTES
from foundation.exports.lines import Pair, refused, text

_RAWS = msgspec.json.Decoder(list[msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)
_INT = msgspec.json.Decoder(int)
_BOOL = msgspec.json.Decoder(bool)
_NULL = b"null"


class Members:
    """The members of one line, of which each is taken once."""

    def __init__(self, members: dict[str, msgspec.Raw]) -> None:
        self._left = members

    def has(self, name: str) -> bool:
        """Whether a member is there that nobody took."""
        return name in self._left

    def take(self, name: str) -> bytes:
        """A member's JSON; refused when it is missing."""
        raw = self._left.pop(name, None)
        if raw is None:
            raise refused("is missing", name)
        return bytes(raw)

    def end(self) -> None:
        """Refuse what nobody took."""
        for name in self._left:
            raise refused("is no member of this line", name)


class Form(Protocol):
    """One kind of column."""

    def write(self, name: str, value: Any) -> list[Pair]:
        """The members of a value that is not null."""
        ...

    def read(self, name: str, members: Members) -> Any:
        """The value, taken out of the members; None for null. Refuses what it would not write."""
        ...


class BytesForm(Form, Protocol):
    """A form of bytes."""


class _Scalar:
    """A form of one member with a type of JSON."""

    def __init__(self, decoder: Any, what: str) -> None:
        self._decoder = decoder
        self._what = what

    def write(self, name: str, value: Any) -> list[Pair]:
        return [(name, self.encoded(value))]

    def read(self, name: str, members: Members) -> Any:
        raw = members.take(name)
        if raw == _NULL:
            return None
        try:
            return self.decoded(self._decoder.decode(raw))
        except (msgspec.DecodeError, ValueError, OverflowError):
            raise refused(f"must be {self._what}", name) from None

    def encoded(self, value: Any) -> bytes:
        """The JSON of a value."""
        return msgspec.json.encode(value)

    def decoded(self, value: Any) -> Any:
        """The value of what stood there; raises ValueError."""
        return value


class _Text(_Scalar):
    def encoded(self, value: str) -> bytes:
        return text(value)


class _Int(_Scalar):
    def decoded(self, value: int) -> int:
        if not -(2**63) <= value < 2**63:
            raise ValueError("beyond 64 bits")
        return value


class _Time(_Scalar):
    def encoded(self, value: datetime) -> bytes:
        shown = value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")
        return b'"%bZ"' % shown.encode()

    def decoded(self, value: str) -> datetime:
        if not value.endswith("Z"):
            raise ValueError("not in UTC")
        return datetime.fromisoformat(value)


class _Hex(_Scalar):
    def encoded(self, value: bytes) -> bytes:
        return b'"%b"' % value.hex().encode()

    def decoded(self, value: str) -> bytes:
        return bytes.fromhex(value)


class _Utf8(_Scalar):
    def encoded(self, value: bytes) -> bytes:
        return text(value.decode())

    def decoded(self, value: str) -> bytes:
        return value.encode()


class _Base64(_Scalar):
    def encoded(self, value: bytes) -> bytes:
        return b'"%b"' % base64.b64encode(value)

    def decoded(self, value: str) -> bytes:
        return from_base64(value)


TEXT: Form = _Text(_TEXT, "a text")
INT: Form = _Int(_INT, "an integer of 64 bits")
BOOL: Form = _Scalar(_BOOL, "true or false")
TIME: Form = _Time(_TEXT, "a time in UTC with microseconds")
HEX: BytesForm = _Hex(_TEXT, "bytes as hexadecimal text")
UTF8: BytesForm = _Utf8(_TEXT, "a text")
BASE64: BytesForm = _Base64(_TEXT, "bytes as base64")


class _Json:
    """Bytes that are JSON, most of the time."""

    def write(self, name: str, value: bytes) -> list[Pair]:
        if embeddable(value):
            return [(name, value)]
        return BASE64.write(f"{name}_base64", value)

    def read(self, name: str, members: Members) -> bytes | None:
        if members.has(f"{name}_base64"):
            found: bytes = BASE64.read(f"{name}_base64", members)
            return found
        raw = members.take(name)
        return None if raw == _NULL else raw


JSON: BytesForm = _Json()


class Salted:
    """A salt and what stands behind it."""

    def __init__(self, form: BytesForm) -> None:
        self._form = form

    def write(self, name: str, value: bytes) -> list[Pair]:
        """See `Form`."""
        salt, body = value[:SALT_BYTES], value[SALT_BYTES:]
        return [*HEX.write(f"{name}_salt", salt), *self._form.write(name, body)]

    def read(self, name: str, members: Members) -> bytes | None:
        """See `Form`."""
        if not members.has(f"{name}_salt"):
            return self._form.read(name, members)
        salt: bytes = HEX.read(f"{name}_salt", members)
        if len(salt or b"") != SALT_BYTES:
            raise refused(f"must have {SALT_BYTES} bytes", f"{name}_salt")
        return salt + (self._form.read(name, members) or b"")


def embeddable(value: bytes) -> bool:
    """Whether bytes are JSON that can stand in a line as it is. `null` cannot: it means nothing."""
    if b"\n" in value or b"\r" in value or value == _NULL:
        return False
    try:
        value.decode()
        found = _RAWS.decode(b"[%b]" % value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return len(found) == 1 and bytes(found[0]) == value


def from_base64(value: str) -> bytes:
    """The bytes; raises ValueError, also for a text that another text of the same bytes is."""
    try:
        found = base64.b64decode(value, validate=True)
    except binascii.Error:
        raise ValueError("no base64") from None
    if base64.b64encode(found).decode() != value:
        raise ValueError("not the base64 of its bytes")
    return found


def raw_items(name: str, members: Members) -> Sequence[bytes]:
    """The exact items of a member that is a list."""
    try:
        return [bytes(item) for item in _RAWS.decode(members.take(name))]
    except (msgspec.DecodeError, RecursionError):
        raise refused("must be a list", name) from None
