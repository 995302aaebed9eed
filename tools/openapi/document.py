"""The document: paths from the routes, answers from the list of reasons."""

import tomllib

from counterfoil.types.v1 import annotations_pb2 as options
from counterfoil.types.v1 import error_reason_pb2 as reasons
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from foundation.errors import surface_of
from foundation.idempotency import HEADER
from foundation.idempotency.keys import KEY_CHARACTERS_MAX
from foundation.json.shape import TIMESTAMP, is_map, is_raw, member_of
from gateway.app import CONTRACTS
from gateway.routes import Route, routes_of
from tools.openapi import comments, limits
from tools.openapi.schemas import EVENT, PREVIEW, Components, Schema
from tools.proto import REPO

_ALWAYS: tuple[int, ...] = (400, 401, 429, 500, 503, 504)
_TITLES = {
    400: "A field is wrong, or the resource's state forbids the call; the text names the field.",
    401: "No credential, or one that nobody issued.",
    403: "The credential is not good for this call.",
    404: "The resource does not exist in the caller's workspace.",
    409: "Another writer was first, or an idempotency key stands for another request.",
    413: "The body is too large.",
    429: "More requests than this key may make; `retry-after` says when to come back.",
    500: "A defect; the log has the details under the request id.",
    503: "A part of the installation is away; repeat the request.",
    504: "The request took too long.",
}


def build() -> Schema:
    """The whole document."""
    components = Components(comments.read())
    paths: dict[str, Schema] = {}
    for route in routes_of(CONTRACTS):
        paths.setdefault(route.template, {})[route.verb.lower()] = _operation(route, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Counterfoil",
            "version": tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["version"],
            "description": "A self-hosted, durable runtime for long-running AI agents.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {"apiKey": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted({**components.schemas, "Error": _error()}.items())),
            "responses": {str(status): _failure(status) for status in sorted(_TITLES)},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _operation(route: Route, components: Components) -> Schema:
    request = route.method.input_type
    streams = route.method.server_streaming
    place = _templates(route).index(route.template)
    suffix = f"Alias{place}" if place else ""
    found: Schema = {
        "operationId": f"{route.method.name}{suffix}",
        "tags": [route.method.containing_service.name.removesuffix("Service")],
        "description": components.comment(route.method.full_name),
        "parameters": [
            *(
                _path_parameter(request.fields_by_name[name], components)
                for name in route.variables
            ),
            *(_query(request, route, components) if route.body != "*" else ()),
            *_headers(route, streams=streams),
        ],
    }
    if route.body == "*":
        schema = components.refer(request, sent=True)
        found["requestBody"] = {
            "required": bool(components.schemas[request.name].get("required")),
            "content": {"application/json": {"schema": schema}},
        }
    found["responses"] = {"200": _success(route, components, streams=streams)}
    for status in _statuses(route):
        found["responses"][str(status)] = {"$ref": f"#/components/responses/{status}"}
    return found


def _templates(route: Route) -> list[str]:
    return [one.template for one in routes_of(CONTRACTS) if one.rpc == route.rpc]


def _statuses(route: Route) -> list[int]:
    found = set(_ALWAYS)
    if route.variables:
        found.add(404)
    if route.verb == "POST":
        found |= {409, 413}
    return sorted(found)


def _path_parameter(field: FieldDescriptor, components: Components) -> Schema:
    schema = components.value(member_of(field), sent=True)
    comment = schema.pop("description", "")
    return {
        "name": field.name,
        "in": "path",
        "required": True,
        "description": comment,
        "schema": schema,
    }


def _query(request: Descriptor, route: Route, components: Components) -> list[Schema]:
    found: list[Schema] = []
    for field in request.fields:
        member = member_of(field)
        hidden = member.server_bound or member.output_only or field.name in route.variables
        if hidden or field.name == route.body or not _is_queryable(field):
            continue
        name = field.GetOptions().Extensions[options.query_name] or member.key
        if field.is_repeated:
            name = f"{name.removesuffix('[]')}[]"
        schema = components.value(member, sent=True)
        comment = schema.pop("description", "")
        parameter: Schema = {"name": name, "in": "query", "description": comment, "schema": schema}
        if limits.is_required(field):
            parameter["required"] = True
        found.append(parameter)
    return found


def _is_queryable(field: FieldDescriptor) -> bool:
    if is_map(field):
        return False
    return field.message_type is None or field.message_type.full_name == TIMESTAMP


def _headers(route: Route, *, streams: bool) -> list[Schema]:
    if streams:
        return [
            {
                "name": "Last-Event-ID",
                "in": "header",
                "description": "The `id` of the last frame that was seen: the stream continues"
                " directly behind it.",
                "schema": {"type": "string"},
            }
        ]
    if route.verb != "POST":
        return []
    return [
        {
            "name": HEADER,
            "in": "header",
            "description": "A repetition of the request under the same key, within 24 hours, gets"
            " the first answer; another request under it is a conflict.",
            "schema": {"type": "string", "minLength": 1, "maxLength": KEY_CHARACTERS_MAX},
        }
    ]


def _success(route: Route, components: Components, *, streams: bool) -> Schema:
    response = route.method.output_type
    if streams:
        data = [components.refer(one, sent=False) for one in (EVENT, PREVIEW)]
        return {
            "description": "Server-sent events: `event` is the type, `data` the event as JSON, `id`"
            " the place in the log. `ping` frames keep the connection; an `error` frame has an"
            " Error and is the last one.",
            "headers": _answer_headers(),
            "content": {
                "text/event-stream": {"schema": {"type": "string"}, "x-data": {"anyOf": data}}
            },
        }
    if route.response_body:
        field = response.fields_by_name[route.response_body]
        if is_raw(field):
            return {
                "description": components.comment(field.full_name),
                "headers": _answer_headers(),
                "content": {"application/json": {"schema": {"type": "object"}}},
            }
        message = field.message_type
        assert message is not None
        response = message
    return {
        "description": components.comment(response.full_name),
        "headers": _answer_headers(),
        "content": {"application/json": {"schema": components.refer(response, sent=False)}},
    }


def _answer_headers() -> Schema:
    return {"request-id": {"description": "Id of the request.", "schema": {"type": "string"}}}


def _failure(status: int) -> Schema:
    headers = _answer_headers()
    if status in (429, 503):
        headers["retry-after"] = {
            "description": "Seconds until a repetition makes sense.",
            "schema": {"type": "integer"},
        }
    schema = {"$ref": "#/components/schemas/Error"}
    return {
        "description": _TITLES[status],
        "headers": headers,
        "content": {"application/json": {"schema": schema}},
    }


def _error() -> Schema:
    every = reasons.ErrorReason.DESCRIPTOR.values
    types = {surface_of(reasons.ErrorReason.ValueType(value.number)).http_type for value in every}
    return {
        "type": "object",
        "description": "What a failed call answers.",
        "properties": {
            "type": {"type": "string", "const": "error"},
            "error": {
                "type": "object",
                "properties": {
                    "type": {"type": "string", "enum": sorted(types - {""})},
                    "message": {"type": "string"},
                    "details": {
                        "type": "object",
                        "properties": {"error_code": {"type": "string"}},
                        "required": ["error_code"],
                    },
                },
                "required": ["type", "message"],
            },
            "request_id": {"type": "string"},
        },
        "required": ["type", "error", "request_id"],
    }
