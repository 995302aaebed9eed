"""JSON values at the limit of a `buf.validate` rule and one beyond it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from buf.validate import validate_pb2
from counterfoil.types.v1 import annotations_pb2 as options
from google.protobuf.descriptor import FieldDescriptor

from foundation.json.scalars import enum_literals

ABSENT: Final[Any] = type("Absent", (), {"__repr__": lambda _: "ABSENT"})()
"""The value of a member that is left out."""

PATTERNS: dict[str, tuple[str, str, str]] = {
    "^[A-Za-z0-9+/]+={0,2}$": ("", "A", "A-"),
    "^[A-Za-z0-9_-]+$": ("", "a", "a b"),
    "^[A-Z]{2}$": ("DE", "", "DEU"),
    "^https?://": ("https://", "x", "ftp://x"),
    "^[0-9]{1,18}:[0-9a-f]{64}$": ("1:" + "0" * 64, "", "1:" + "0" * 63),
}
"""Pattern → how a text that matches begins, what may follow any number of times, and one that does
not match. A new pattern needs its line."""


@dataclass(frozen=True)
class Text:
    """A text that is written out only when it is used, because some are 32 MiB long."""

    length: int
    prefix: str = ""
    fill: str = "x"

    def __str__(self) -> str:
        return self.prefix + self.fill * (self.length - len(self.prefix))


@dataclass(frozen=True)
class Values:
    """One rule with values that obey and values that do not; `below` is their path's end."""

    rule: str
    good: tuple[Any, ...]
    bad: tuple[Any, ...]
    below: str = ""
    size: int = 0


def written(value: Any) -> Any:
    """The JSON value, its texts written out."""
    if isinstance(value, Text):
        return str(value)
    if isinstance(value, list):
        items: list[Any] = value
        return [written(item) for item in items]
    if isinstance(value, dict):
        members: dict[str, Any] = value
        return {key: written(item) for key, item in members.items()}
    return value


def values_of(field: FieldDescriptor, element: Callable[[], Any]) -> Iterator[Values]:
    """The values of every rule of a field; `element` gives a good value of it or of its items.

    Raises NotImplementedError, with the name of the rule, for a rule without values here.
    """
    if not field.GetOptions().HasExtension(validate_pb2.field):
        return
    rules = field.GetOptions().Extensions[validate_pb2.field]
    for kind, value in rules.ListFields():
        if kind.name == "required":
            yield Values("required", (element(),), (ABSENT,))
        elif kind.name == "repeated":
            yield from _repeated(field, value, element)
        elif kind.name == "map":
            yield from _map(value)
        elif kind.name in ("string", "bytes", "enum", "int32", "int64"):
            yield from _scalar(field, kind.name, value)
        else:
            raise NotImplementedError(f"{field.full_name}: no values for {kind.name}")


def _scalar(field: FieldDescriptor, kind: str, rules: Any) -> Iterator[Values]:
    may_be_absent = field.has_presence or field.is_repeated
    make = {"string": _string, "bytes": _bytes, "enum": _enum}.get(kind, _number)
    for rule, value in rules.ListFields():
        found = make(field, rules, rule.name, value)
        if found is None:
            raise NotImplementedError(f"{field.full_name}: no values for {kind}.{rule.name}")
        good, bad, size, nothing_is_bad = found
        more = (ABSENT,) if nothing_is_bad and not may_be_absent else ()
        yield Values(f"{kind}.{rule.name}", tuple(good), (*bad, *more), size=size)


Found = tuple[list[Any], list[Any], int, bool] | None
"""Good values, bad ones, the size of the largest, and whether an absent field is bad."""


def _string(field: FieldDescriptor, rules: Any, rule: str, value: Any) -> Found:
    prefix, fill, other = PATTERNS[rules.pattern] if rules.pattern else ("", "x", "")
    match rule:
        case "min_len":
            least = max(value, len(prefix + fill))
            return [Text(least, prefix, fill)], [Text(value - 1)], 0, value > 0
        case "max_len":
            if rules.pattern and not fill:  # the pattern is narrower
                return [prefix], [Text(value + 1)], 0, False
            wide = fill if rules.pattern else "é"
            return [Text(value, prefix, wide)], [Text(value + 1, prefix, wide)], value, False
        case "max_bytes":
            good, bad = Text(value, prefix, fill), Text(value + 1, prefix, fill)
            return [good], [bad], value, False
        case "pattern":
            return [Text(len(prefix + fill), prefix, fill)], [other], 0, True
        case "in":
            return list(value), ["x", f"{value[0]} "], 0, "" not in value
        case _:
            return None


def _bytes(field: FieldDescriptor, rules: Any, rule: str, value: Any) -> Found:
    """Raw JSON: a text of n characters is n + 2 bytes."""
    if not field.GetOptions().Extensions[options.json_raw]:
        return None
    match rule:
        case "min_len":
            return [Text(value - 2)], [1] if value == 2 else [Text(value - 3)], 0, True
        case "max_len":
            return [Text(value - 2)], [Text(value - 1)], value, False
        case _:
            return None


def _enum(field: FieldDescriptor, rules: Any, rule: str, value: Any) -> Found:
    assert field.enum_type is not None
    literals = enum_literals(field.enum_type)
    refused = set(rules.not_in) | (set(literals) - set(getattr(rules, "in") or literals))
    good = [literal for number, literal in literals.items() if number not in refused]
    bad = [literal for number, literal in literals.items() if number in refused]
    match rule:
        case "defined_only" | "not_in" | "in":
            return good, [*bad, "unspecified", "sideways"], 0, rule != "defined_only"
        case _:
            return None


def _number(field: FieldDescriptor, rules: Any, rule: str, value: Any) -> Found:
    match rule:
        case "gte":
            return [value], [value - 1], 0, value > 0
        case "lte":
            return [value], [value + 1], 0, value < 0
        case _:
            return None


def _repeated(field: FieldDescriptor, rules: Any, element: Callable[[], Any]) -> Iterator[Values]:
    items = list(_items(field, rules.items))
    one = next((values.good[0] for values in items), None) or element()
    one = ("x" if field.type == FieldDescriptor.TYPE_STRING else 1) if one is None else one
    for rule, value in rules.ListFields():
        match rule.name:
            case "min_items":
                yield Values("repeated.min_items", ([one] * value,), ([one] * (value - 1), ABSENT))
            case "max_items":
                yield Values("repeated.max_items", ([one] * value,), ([one] * (value + 1),))
            case "items":
                for values in items:
                    good = tuple([item] for item in values.good)
                    bad = tuple([item] for item in values.bad)
                    yield Values(f"repeated.items.{values.rule}", good, bad, ".0")
            case _:
                text = f"{field.full_name}: no values for repeated.{rule.name}"
                raise NotImplementedError(text)


def _items(field: FieldDescriptor, rules: Any) -> Iterator[Values]:
    for kind, value in rules.ListFields():
        yield from _scalar(field, kind.name, value)


def _map(rules: Any) -> Iterator[Values]:
    """Maps of texts."""
    for rule, value in rules.ListFields():
        if rule.name == "max_pairs":
            good = {f"k{number}": "v" for number in range(value)}
            yield Values("map.max_pairs", (good,), ({**good, "more": "v"},))
            continue
        if rule.name not in ("keys", "values"):
            raise NotImplementedError(f"no values for map.{rule.name}")
        for limit, size in value.string.ListFields():
            beyond = {"min_len": size - 1, "max_len": size + 1}[limit.name]
            at, off = ("é" * size, "é" * beyond)
            name = f"map.{rule.name}.string.{limit.name}"
            if rule.name == "keys":
                yield Values(name, ({at: "v"},), ({off: "v"},), f".{off}")
            else:
                yield Values(name, ({"k": at},), ({"k": off},), ".k")
