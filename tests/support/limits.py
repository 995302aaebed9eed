"""Requests at each limit of the public contracts and one beyond it, built from the descriptors."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlencode

from counterfoil.types.v1 import annotations_pb2 as options
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from foundation.json.scalars import enum_literals
from foundation.json.shape import (
    TIMESTAMP,
    UNION_KEY,
    Member,
    is_map,
    message_of,
    real_oneofs,
    shape_of,
)
from gateway.routes import Route
from tests.support.limit_values import ABSENT, Values, values_of, written

Place = Callable[[Any], Any]
"""Takes the value of one place; the whole body with it."""

LARGE = 1 << 20
"""From this many bytes on a case is large."""


@dataclass(frozen=True)
class Request:
    """What the gateway's transcoder takes."""

    values: tuple[str, ...]
    query: bytes = b""
    body: bytes = b""

    @property
    def size(self) -> int:
        """Its bytes."""
        return len(self.body) + len(self.query) + sum(map(len, self.values))


@dataclass(frozen=True)
class Case:
    """One rule of one field, as one call meets it: requests that obey and requests that do not."""

    route: Route
    field: str
    rule: str
    path: str
    good: tuple[Callable[[], Request], ...]
    bad: tuple[Callable[[], Request], ...]
    large: bool

    @property
    def paths(self) -> tuple[str, ...]:
        """What a refusal may name: the place; in a query also the parameter of an item."""
        return (self.path,) if self.route.body else (self.path, self.path.removesuffix(".0"))

    @property
    def name(self) -> str:
        """The call, the place and the rule."""
        return f"{self.route.method.name} {self.path} {self.rule}"


def cases_of(route: Route) -> Iterator[Case]:
    """The cases of one call; a field that is met at several places is tried at the first one."""
    seen: set[tuple[str, str]] = set()
    for found in _in_path(route), _in_body(route) if route.body else _in_query(route):
        for case in found:
            if (case.field, case.rule) not in seen:
                seen.add((case.field, case.rule))
                yield case


def minimal(descriptor: Descriptor) -> Any:
    """The smallest JSON that obeys every rule of a message."""
    shape = shape_of(descriptor)
    if shape.list_of is not None:
        return _smallest(shape.list_of.field)
    found = {member.key: _smallest(member.field) for member in _members(descriptor)
             if _is_needed(member.field)}  # fmt: skip
    if shape.union:
        tag, field = next(iter(shape.variants.items()))
        return {UNION_KEY: tag, **minimal(message_of(field)), **found}
    if real_oneofs(descriptor):
        raise NotImplementedError(f"{descriptor.full_name}: a oneof that is no union")
    return found


def _in_path(route: Route) -> Iterator[Case]:
    request = _plain(route)
    for at, name in enumerate(route.variables):
        field = route.method.input_type.fields_by_name[name]

        def place(value: Any, at: int = at) -> Request:
            values = list(request.values)
            values[at] = "" if value is ABSENT else value
            return Request(tuple(values), request.query, request.body)

        yield from _at(route, field, name, place)


def _in_query(route: Route) -> Iterator[Case]:
    for member in _members(route.method.input_type):
        name = member.field.GetOptions().Extensions[options.query_name] or member.key

        def place(value: Any, name: str = name) -> Request:
            pairs = [] if value is ABSENT else [(name, value)]
            return Request(_values(route), urlencode(pairs, doseq=True).encode())

        yield from _at(route, member.field, name, place)


def _in_body(route: Route) -> Iterator[Case]:
    def place(value: Any) -> Request:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return Request(_values(route), b"", text.encode())

    yield from _inside(route, route.method.input_type, "", place, ())


def _inside(
    route: Route, descriptor: Descriptor, path: str, place: Place, outer: tuple[Descriptor, ...]
) -> Iterator[Case]:
    """The cases of a message whose JSON `place` takes."""
    if descriptor in outer:
        return
    outer = (*outer, descriptor)
    shape = shape_of(descriptor)
    if shape.list_of is not None:
        bare = partial(_bare, place)
        yield from _member(route, shape.list_of.field, path, bare, outer)
        return
    base = minimal(descriptor)
    for tag, field in shape.variants.items():
        tagged = partial(_merged, place, {UNION_KEY: tag})
        yield from _inside(route, message_of(field), path, tagged, outer)
    if shape.union:
        kind, required = f"{path}.{UNION_KEY}".lstrip("."), "oneof.required"
        values = Values(required, good=(base,), bad=({**base, UNION_KEY: ABSENT},))
        yield _case(route, f"{descriptor.full_name}.{shape.union}", kind, values,
                    lambda value: place(_without(value)))  # fmt: skip
        return
    for member in _members(descriptor):
        key = f"{path}.{member.key}" if path else member.key
        yield from _member(route, member.field, key, partial(_put, place, base, member.key), outer)


def _member(
    route: Route, field: FieldDescriptor, path: str, place: Place, outer: tuple[Descriptor, ...]
) -> Iterator[Case]:
    yield from _at(route, field, path, place)
    inner = field.message_type
    if inner is None or is_map(field) or inner.full_name.startswith("google.protobuf."):
        return
    if field.GetOptions().Extensions[options.json_patch]:
        return
    if field.is_repeated:
        yield from _inside(route, inner, f"{path}.0", lambda value: place([value]), outer)
    else:
        yield from _inside(route, inner, path, place, outer)


def _at(route: Route, field: FieldDescriptor, path: str, place: Place) -> Iterator[Case]:
    for values in values_of(field, partial(_element, field)):
        yield _case(route, field.full_name, path + values.below, values, place)


def _case(route: Route, field: str, path: str, values: Values, place: Place) -> Case:
    def requests(found: tuple[Any, ...]) -> tuple[Callable[[], Request], ...]:
        return tuple(partial(lambda value: place(written(value)), value) for value in found)

    good, bad = requests(values.good), requests(values.bad)
    return Case(route, field, values.rule, path, good, bad, values.size >= LARGE)


def _element(field: FieldDescriptor) -> Any:
    """A good value of the field itself, or of one element of a collection."""
    if field.message_type is not None and not is_map(field):
        if field.message_type.full_name == TIMESTAMP:
            return "2026-01-01T00:00:00Z"
        return minimal(field.message_type)
    if field.enum_type is not None:
        return next(iter(enum_literals(field.enum_type).values()))
    return None


def _smallest(field: FieldDescriptor) -> Any:
    for values in values_of(field, partial(_element, field)):
        if values.good:
            return written(values.good[0])
    return _element(field)


def _is_needed(field: FieldDescriptor) -> bool:
    """Whether a message without the field breaks a rule."""
    return any(ABSENT in values.bad for values in values_of(field, lambda: None))


def _members(descriptor: Descriptor) -> Iterator[Member]:
    """What a client may send; members of unions are those beside the variants."""
    shape = shape_of(descriptor)
    for member in (*shape.head, *shape.tail):
        if not (member.output_only or member.server_bound):
            yield member


def _bare(place: Place, value: Any) -> Any:
    return place([] if value is ABSENT else value)


def _put(place: Place, base: dict[str, Any], key: str, value: Any) -> Any:
    return place(_without({**base, key: value}))


def _merged(place: Place, more: dict[str, Any], value: dict[str, Any]) -> Any:
    return place({**more, **value})


def _without(value: dict[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if item is not ABSENT}


def _values(route: Route) -> tuple[str, ...]:
    return tuple(f"{name}_1" for name in route.variables)


def _plain(route: Route) -> Request:
    body = json.dumps(minimal(route.method.input_type)).encode() if route.body else b""
    return Request(_values(route), b"", body)
