"""The route table, read from the `google.api.http` options of the public services."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from google.protobuf.descriptor import FileDescriptor, MethodDescriptor, ServiceDescriptor

from foundation.google import http_binding

_VERBS = ("get", "put", "post", "delete", "patch")
_SUGGESTIONS_MAX = 3
_SIMILARITY_MIN = 0.6
_COMPARED_MAX = 200
"""Characters of an unknown path that are compared; comparing costs the product of both lengths."""


class BindingError(ValueError):
    """A contract binds a method in a way that the gateway does not offer: a mistake of ours."""


@dataclass(frozen=True, slots=True)
class Route:
    """One binding of one method.

    `owner` is the service that owns the contract (`ledger`), `variables` are the request fields
    that the path fills, in order; `body` is empty, `*` or a request field, `response_body` is
    empty or a response field.
    """

    verb: str
    template: str
    owner: str
    method: MethodDescriptor
    variables: tuple[str, ...]
    body: str
    response_body: str

    @property
    def rpc(self) -> str:
        """The method as gRPC names it: `/counterfoil.ledger.v1.SessionService/GetSession`."""
        return f"/{self.method.containing_service.full_name}/{self.method.name}"


@dataclass(slots=True)
class _Node:
    literals: dict[str, "_Node"] = field(default_factory=dict[str, "_Node"])
    variable: "_Node | None" = None
    routes: dict[str, Route] = field(default_factory=dict[str, Route])


class Match(NamedTuple):
    """A known path: its routes by verb, and the texts of its variable segments in order."""

    routes: dict[str, Route]
    values: tuple[str, ...]

    @property
    def allowed(self) -> list[str]:
        """The verbs that the path takes, those that every server adds included."""
        verbs = set(self.routes) | {"OPTIONS"}
        if "GET" in verbs:
            verbs.add("HEAD")
        return sorted(verbs)


class Table:
    """All routes. Literal segments win over variables, as `work/poll` over `work/{work_id}`."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._root = _Node()
        for route in self.routes:
            self._add(route)

    def find(self, segments: Sequence[str]) -> Match | None:
        """The routes of a path that was split at its slashes; None for an unknown path."""
        return _find(self._root, segments, ())

    def similar(self, path: str) -> list[str]:
        """At most three routes like an unknown path, the closest first: `GET /v1/agents`."""
        asked = path[:_COMPARED_MAX].split("/")
        verbs: dict[str, list[str]] = {}
        for route in self.routes:
            verbs.setdefault(route.template, []).append(route.verb)
        scored = [(_similarity(asked, template.split("/")), template) for template in verbs]
        close = sorted((-score, template) for score, template in scored if score > _SIMILARITY_MIN)
        return [f"{', '.join(sorted(verbs[t]))} {t}" for _, t in close[:_SUGGESTIONS_MAX]]

    def _add(self, route: Route) -> None:
        node = self._root
        for segment in route.template.split("/")[1:]:
            if segment.startswith("{"):
                node.variable = node.variable or _Node()
                node = node.variable
            else:
                node = node.literals.setdefault(segment, _Node())
        if route.verb in node.routes:
            raise BindingError(f"{route.verb} {route.template} is bound twice")
        node.routes[route.verb] = route


def routes_of(files: Iterable[FileDescriptor]) -> list[Route]:
    """The routes of every bound method in these contracts; raises BindingError."""
    services = [s for file in files for s in file.services_by_name.values()]
    return [route for service in services for route in _of_service(service)]


def _of_service(service: ServiceDescriptor) -> Iterable[Route]:
    owner = service.full_name.split(".")[1]
    for method in service.methods:
        options = method.GetOptions()
        if not options.HasExtension(http_binding):
            continue
        rule = options.Extensions[http_binding]
        for binding in (rule, *rule.additional_bindings):
            yield _route(owner, method, binding)


def _route(owner: str, method: MethodDescriptor, rule: Any) -> Route:
    verb = rule.WhichOneof("pattern")
    if verb not in _VERBS:
        raise BindingError(f"{method.full_name}: only {', '.join(_VERBS)} can be bound")
    template: str = getattr(rule, verb)
    return Route(
        verb=verb.upper(),
        template=template,
        owner=owner,
        method=method,
        variables=tuple(_variables(template)),
        body=rule.body,
        response_body=rule.response_body,
    )


def _variables(template: str) -> Iterable[str]:
    first, *segments = template.split("/")
    if first or not segments:
        raise BindingError(f"{template}: a path starts with a slash")
    for segment in segments:
        name = segment.removeprefix("{").removesuffix("}")
        if not name or set(name) & set("{}*=:"):
            raise BindingError(f"{template}: a segment is a text or one {{field}}")
        if segment != name:
            yield name


def _find(node: _Node, segments: Sequence[str], values: tuple[str, ...]) -> Match | None:
    for at, segment in enumerate(segments):
        literal = node.literals.get(segment)
        variable = node.variable if segment else None
        if literal is not None and variable is not None:
            rest = segments[at + 1 :]
            return _find(literal, rest, values) or _find(variable, rest, (*values, segment))
        if literal is not None:
            node = literal
        elif variable is not None:
            node, values = variable, (*values, segment)
        else:
            return None
    return Match(node.routes, values) if node.routes else None


def _similarity(asked: list[str], template: list[str]) -> float:
    """Compares paths with the asked ids in place of the template's variables."""
    filled = [
        asked[at] if segment.startswith("{") and at < len(asked) and asked[at] else segment
        for at, segment in enumerate(template)
    ]
    return difflib.SequenceMatcher(None, "/".join(asked), "/".join(filled)).ratio()
