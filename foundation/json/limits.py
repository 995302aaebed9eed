"""Whether a message surely keeps the limits of its contract, in a few Python steps.

protovalidate knows every rule and words every violation, but reads much memory to find that a
message is right, and nearly all of ours are. So each message type gets a plan, made once: checks of
rules that are simple comparisons, nothing for parts without rules, and protovalidate itself for a
type with any rule that is not known here. A test compares the plans with protovalidate for every
message type of the contracts.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import protovalidate
from buf.validate import validate_pb2 as rules
from google.protobuf.descriptor import Descriptor, FieldDescriptor, OneofDescriptor
from google.protobuf.message import Message

from foundation.json.shape import is_map, real_oneofs

VALIDATOR = protovalidate.Validator()

Check = Callable[[Any], bool]
"""Tells of a message or a value that it is surely right."""

Rules = dict[str, Any]

_MANY = 1 << 64
_STRING = frozenset({"min_len", "max_len", "in", "pattern", "max_bytes"})
_BYTES = frozenset({"min_len", "max_len", "len"})
_INTEGER = frozenset({"gte", "lte"})
_ENUM = frozenset({"defined_only", "in", "not_in"})
_REPEATED = frozenset({"min_items", "max_items", "items"})
_MAP = frozenset({"min_pairs", "max_pairs", "keys", "values"})

_PLAIN = re.compile(r"\^(?:[\w:/-]|\[[\w/+-]+\]|\?|\+|\{\d+(?:,\d+)?\})+(\$?)", re.ASCII)
"""Patterns that mean the same to RE2 and to Python, but for a `$` at the end."""


class _UnknownRule(Exception):
    """A rule that only protovalidate knows."""


def keeps_limits(message: Message) -> bool:
    """Whether no limit is broken; False may also mean that it is not sure."""
    check = plan(message.DESCRIPTOR)
    return check is None or check(message)


@cache
def plan(descriptor: Descriptor) -> Check | None:
    """The check of a message type; None when neither it nor any part of it has rules."""
    parts = _parts(descriptor)
    if not any(_has_rules(part) for part in (descriptor, *parts)):
        return None
    try:
        if descriptor in parts:
            raise _UnknownRule  # it holds itself
        return _Plan(descriptor).check
    except _UnknownRule:
        return _ask_protovalidate


def _ask_protovalidate(message: Message) -> bool:
    return not VALIDATOR.collect_violations(message, fail_fast=True)


class _Plan:
    """The checks of one message type; one loop for each kind of them, because that is quick."""

    def __init__(self, descriptor: Descriptor) -> None:
        if descriptor.GetOptions().HasExtension(rules.message):
            raise _UnknownRule
        self._lengths: list[tuple[str, int, int]] = []
        self._values: list[tuple[str, Check]] = []
        self._optional: list[tuple[str, Check]] = []
        self._required: list[tuple[str, Check | None]] = []
        self._oneofs: list[tuple[str, bool, dict[str, Check]]] = []
        oneofs = real_oneofs(descriptor)
        for oneof in oneofs:
            self._add_oneof(oneof)
        for field in descriptor.fields:
            if field.containing_oneof not in oneofs:
                self._add(field, _rules_of(field))

    @property
    def check(self) -> Check:
        """Tells whether a message surely keeps every limit, by no more loops than it needs."""
        others = self._lengths or self._values or self._optional or self._required
        return self._keeps if others else self._keeps_oneofs

    def _keeps(self, message: Any) -> bool:
        for name, low, high in self._lengths:
            if not low <= len(getattr(message, name)) <= high:
                return False
        for name, check in self._values:
            if not check(getattr(message, name)):
                return False
        for name, check in self._optional:
            if message.HasField(name) and not check(getattr(message, name)):
                return False
        for name, check in self._required:
            if not message.HasField(name):
                return False
            if check is not None and not check(getattr(message, name)):
                return False
        return not self._oneofs or self._keeps_oneofs(message)

    def _keeps_oneofs(self, message: Any) -> bool:
        for name, required, checks in self._oneofs:
            chosen = message.WhichOneof(name)
            if chosen is None:
                if required:
                    return False
                continue
            check = checks.get(chosen)
            if check is not None and not check(getattr(message, chosen)):
                return False
        return True

    def _add(self, field: FieldDescriptor, own: Rules) -> None:
        if is_map(field):
            self._add_held(field, _within(own, "map", _MAP), "pairs", _pairs)
        elif field.is_repeated:
            self._add_held(field, _within(own, "repeated", _REPEATED), "items", _items)
        elif field.has_presence:
            required: bool = own.pop("required", False)
            check = _value(field, own)
            if required:
                self._required.append((field.name, check))
            elif check is not None:
                self._optional.append((field.name, check))
        elif own.keys() <= {"string", "bytes"} and (bounds := _only_lengths(own)):
            self._lengths.append((field.name, *bounds))
        elif (check := _value(field, own)) is not None:
            self._values.append((field.name, check))

    def _add_held(
        self,
        field: FieldDescriptor,
        given: Rules,
        what: str,
        of: Callable[[FieldDescriptor, Rules], Check | None],
    ) -> None:
        low, high = given.pop(f"min_{what}", 0), given.pop(f"max_{what}", _MANY)
        if (low, high) != (0, _MANY):
            self._lengths.append((field.name, low, high))
        check = of(field, given)
        if check is not None:
            self._values.append((field.name, check))

    def _add_oneof(self, oneof: OneofDescriptor) -> None:
        own = _given(oneof.GetOptions().Extensions[rules.oneof])
        required: bool = own.pop("required", False)
        _within(own, "", frozenset())
        found = {field.name: _value(field, _rules_of(field)) for field in oneof.fields}
        checks = {name: check for name, check in found.items() if check is not None}
        if required or checks:
            self._oneofs.append((oneof.name, required, checks))


def _pairs(field: FieldDescriptor, given: Rules) -> Check | None:
    key, value = (
        _value(part, _given(given.get(f"{part.name}s"))) for part in _message_type(field).fields
    )
    if key is None and value is None:
        return None
    return lambda held: all(
        (key is None or key(name)) and (value is None or value(held[name])) for name in held
    )


def _items(field: FieldDescriptor, given: Rules) -> Check | None:
    check = _value(field, _given(given.get("items")))
    return None if check is None else lambda held: all(map(check, held))


def _value(field: FieldDescriptor, own: Rules) -> Check | None:
    """The check of one value: of a single field, or of an item."""
    if field.message_type is not None:
        _within(own, "", frozenset())
        return plan(_message_type(field))
    if not own:
        return None
    kind = next(iter(own))
    match kind:
        case "string":
            return _text(_within(own, kind, _STRING))
        case "bytes":
            return _length(_within(own, kind, _BYTES))
        case "int32" | "int64":
            return _range(_within(own, kind, _INTEGER))
        case "enum":
            return _enum(field, _within(own, kind, _ENUM))
        case _:
            raise _UnknownRule


def _text(given: Rules) -> Check:
    checks = [_length(given)]
    if "in" in given:
        checks.append(frozenset(given["in"]).__contains__)
    if "max_bytes" in given:
        checks.append(_bytes(given["max_bytes"]))
    if "pattern" in given:
        if "max_bytes" in given:
            raise _UnknownRule  # patterns of megabytes are protovalidate's, which is quicker
        checks.append(_pattern(given["pattern"]))
    if len(checks) == 1:
        return checks[0]
    return lambda value: all(check(value) for check in checks)


def _pattern(pattern: str) -> Check:
    plain = _PLAIN.fullmatch(pattern)
    if plain is None:
        raise _UnknownRule
    if plain[1]:
        whole = re.compile(pattern[:-1])
        return lambda value: whole.fullmatch(value) is not None
    begin = re.compile(pattern)
    return lambda value: begin.match(value) is not None


def _length(given: Rules) -> Check:
    low, high = _bounds(given)
    return lambda value: low <= len(value) <= high


def _bytes(high: int) -> Check:
    sure = high // 4
    return lambda value: len(value) <= sure or len(value.encode()) <= high


def _only_lengths(own: Rules) -> tuple[int, int] | None:
    """Both bounds, where no other rule is given."""
    for given in own.values():
        found = _given(given)
        if found.keys() <= _BYTES:
            return _bounds(found)
    return None


def _bounds(given: Rules) -> tuple[int, int]:
    low, high = given.get("min_len", 0), given.get("max_len", _MANY)
    return max(low, given.get("len", 0)), min(high, given.get("len", _MANY))


def _range(given: Rules) -> Check:
    low, high = given.get("gte", -_MANY), given.get("lte", _MANY)
    if low > high:
        raise _UnknownRule  # then it means what is outside of the two
    return lambda value: low <= value <= high


def _enum(field: FieldDescriptor, given: Rules) -> Check:
    assert field.enum_type is not None
    allowed = frozenset(given["in"]) if "in" in given else None
    if given.get("defined_only"):
        defined = frozenset(field.enum_type.values_by_number)
        allowed = defined if allowed is None else allowed & defined
    refused = frozenset(given.get("not_in", ()))
    if allowed is None:
        return lambda value: value not in refused
    return (allowed - refused).__contains__


def _message_type(field: FieldDescriptor) -> Descriptor:
    assert field.message_type is not None
    return field.message_type


def _parts(descriptor: Descriptor) -> list[Descriptor]:
    """All that a message of the type can hold, however deep."""
    found: list[Descriptor] = []
    for holder in _growing(descriptor, found):
        for field in holder.fields:
            if field.message_type is not None and field.message_type not in found:
                found.append(field.message_type)
    return found


def _growing(first: Descriptor, others: list[Descriptor]) -> Iterator[Descriptor]:
    yield first
    yield from others


def _has_rules(descriptor: Descriptor) -> bool:
    return (
        descriptor.GetOptions().HasExtension(rules.message)
        or any(field.GetOptions().HasExtension(rules.field) for field in descriptor.fields)
        or any(oneof.GetOptions().HasExtension(rules.oneof) for oneof in descriptor.oneofs)
    )


def _rules_of(field: FieldDescriptor) -> Rules:
    options = field.GetOptions()
    return _given(options.Extensions[rules.field]) if options.HasExtension(rules.field) else {}


def _given(message: Message | None) -> Rules:
    return {} if message is None else {field.name: value for field, value in message.ListFields()}


def _within(own: Rules, kind: str, known: frozenset[str]) -> Rules:
    """The rules of one kind, where no other kind may be given and none that is not known."""
    if own.keys() - {kind}:
        raise _UnknownRule
    given = _given(own.get(kind))
    if given.keys() - known:
        raise _UnknownRule
    return given
