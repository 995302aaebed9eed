"""The OpenAPI document says what the gateway does; what is taken away from clients is caught."""

import copy
import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gateway.app import CONTRACTS
from gateway.routes import routes_of
from tools.openapi.__main__ import BASELINE, DOCUMENT, rendered
from tools.openapi.compatible import breaks
from tools.openapi.document import build

BUILT = build()
SCHEMAS = BUILT["components"]["schemas"]


def test_the_committed_document_is_what_the_contracts_say() -> None:
    assert DOCUMENT.read_text() == rendered(BUILT), "run `make proto`"


def test_nothing_of_the_baseline_is_taken_away() -> None:
    found = breaks(json.loads(BASELINE.read_text()), BUILT)
    assert found == [], "if that is meant, run `make proto-baseline`"


def test_every_route_is_an_operation_with_a_description() -> None:
    ids: list[str] = []
    for route in routes_of(CONTRACTS):
        operation = BUILT["paths"][route.template][route.verb.lower()]
        assert operation["description"], route.rpc
        ids.append(operation["operationId"])
    assert len(set(ids)) == len(ids)


def _references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if "$ref" in value else set[str]()
        return own.union(*(_references(inner) for inner in value.values()))
    return set[str]().union(*map(_references, value)) if isinstance(value, list) else set()


def test_every_reference_leads_somewhere_and_every_schema_is_one() -> None:
    for reference in _references(BUILT):
        _, _, kind, name = reference.split("/")
        assert name in BUILT["components"][kind]
    for schema in SCHEMAS.values():
        Draft202012Validator.check_schema(schema)


def _accepts(name: str, value: Any) -> bool:
    schema = {"$ref": f"#/components/schemas/{name}", "components": BUILT["components"]}
    return Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("CreateAgentRequest", {"name": "a", "model": "m"}, {"name": "a"}),
        ("CreateAgentRequest", {"name": "a", "model": {"id": "m"}}, {"name": "", "model": "m"}),
        ("CreateAgentRequest", {"name": "a", "model": "m", "system": None}, {"nam": "a"}),
        ("CreateSessionRequest", {"agent": "a", "environment_id": "e"}, {"agent": 1}),
        (
            "SubmitEventsRequest",
            {"events": [{"type": "user.interrupt"}]},
            {"events": [{"type": "user.nothing"}]},
        ),
        ("SubmitEventsRequest", {"events": [{"type": "user.interrupt"}]}, {"events": []}),
    ],
)
def test_requests_have_unions_shorthands_nulls_and_limits(name: str, good: Any, bad: Any) -> None:
    assert _accepts(name, good)
    assert not _accepts(name, bad)


def test_headers_queries_and_streams_are_described() -> None:
    paths = BUILT["paths"]
    names = {
        (verb, one["name"])
        for item in paths.values()
        for verb, operation in item.items()
        for one in operation["parameters"]
        if one["in"] != "path"
    }
    expected = {("post", "Idempotency-Key"), ("get", "Last-Event-ID"), ("get", "types[]")}
    assert expected <= names
    assert ("get", "created_at[gte]") in names
    stream = paths["/v1/sessions/{session_id}/events/stream"]["get"]["responses"]["200"]
    assert "text/event-stream" in stream["content"]
    assert BUILT["security"] == [{"bearer": []}, {"apiKey": []}]
    assert {"400", "401", "409", "429", "503"} <= paths["/v1/sessions"]["post"]["responses"].keys()


def _without_path(document: Any) -> None:
    del document["paths"]["/v1/sessions/{session_id}"]


def _without_verb(document: Any) -> None:
    del document["paths"]["/v1/agents"]["post"]


def _without_parameter(document: Any) -> None:
    document["paths"]["/v1/sessions/{session_id}/events"]["get"]["parameters"].pop()


def _without_field(document: Any) -> None:
    del document["components"]["schemas"]["CreateAgentRequest"]["properties"]["system"]


def _without_answer(document: Any) -> None:
    del document["components"]["schemas"]["Session"]["properties"]["usage"]


def _without_tag(document: Any) -> None:
    mapping = document["components"]["schemas"]["ContentBlockInput"]["discriminator"]["mapping"]
    del mapping["image"]


def _shorter(document: Any) -> None:
    name = document["components"]["schemas"]["CreateAgentRequest"]["properties"]["name"]
    name["maxLength"] = 255


def _bounded(document: Any) -> None:
    schemas = document["components"]["schemas"]
    schemas["CreateSessionRequest"]["properties"]["title"]["minLength"] = 1


def _required(document: Any) -> None:
    document["components"]["schemas"]["CreateAgentRequest"]["required"].append("system")


def _not_null(document: Any) -> None:
    schemas = document["components"]["schemas"]
    schemas["CreateAgentRequest"]["properties"]["system"]["type"] = "string"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_without_path, "GET /v1/sessions/{session_id}: is gone"),
        (_without_verb, "POST /v1/agents: is gone"),
        (_without_parameter, ": is gone"),
        (_without_field, "CreateAgentRequest.system: is gone"),
        (_without_answer, "Session.usage: is gone"),
        (_without_tag, "ContentBlockInput: the tag image is gone"),
        (_shorter, "CreateAgentRequest.name: maxLength is tighter, 255 instead of 256"),
        (_bounded, "CreateSessionRequest.title: minLength is tighter, 1 instead of none"),
        (_required, "CreateAgentRequest.system: is newly required"),
        (_not_null, "CreateAgentRequest.system: null is not allowed any more"),
    ],
)
def test_what_is_taken_away_is_named(change: Any, said: str) -> None:
    changed = copy.deepcopy(BUILT)
    change(changed)
    found = breaks(BUILT, changed)
    assert any(said in line for line in found), found
    assert breaks(BUILT, BUILT) == []
