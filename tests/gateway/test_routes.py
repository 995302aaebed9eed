"""The route table is the contracts' `google.api.http` options and nothing else."""

import pytest
from counterfoil.context.v1 import snapshots_pb2

from gateway.app import CONTRACTS
from gateway.routes import BindingError, Route, Table, routes_of
from gateway.transcoding import Transcoder

ROUTES = routes_of(CONTRACTS)
TABLE = Table(ROUTES)
METHOD = ROUTES[0].method


def route(verb: str, template: str) -> Route:
    return Route(verb, template, "ledger", METHOD, (), "", "")


def test_every_binding_of_the_public_services_is_a_route() -> None:
    assert {f"{r.verb} {r.template} {r.owner}" for r in ROUTES} >= {
        "POST /v1/agents registry",
        "GET /v1/agents/{agent_id} registry",
        "POST /v1/agents/{agent_id}/archive registry",
        "POST /v1/environments registry",
        "DELETE /v1/environments/{environment_id} registry",
        "POST /v1/sessions ledger",
        "GET /v1/sessions/{session_id} ledger",
        "DELETE /v1/sessions/{session_id} ledger",
        "POST /v1/sessions/{session_id}/events ledger",
        "GET /v1/sessions/{session_id}/events ledger",
        "GET /v1/sessions/{session_id}/events/stream ledger",
        "GET /v1/sessions/{session_id}/stream ledger",
        "GET /v1/sessions/{session_id}/threads ledger",
    }


def test_internal_services_have_no_route() -> None:
    services = {route.method.containing_service.name for route in ROUTES}
    public = {
        "AgentService",
        "EnvironmentService",
        "SessionService",
        "ContextSnapshotService",
        "LedgerExportService",
    }
    assert services == public


def test_a_variable_takes_one_segment_that_is_not_empty() -> None:
    found = TABLE.find(["v1", "sessions", "sesn_1", "events"])
    assert found is not None
    assert found.values == ("sesn_1",)
    assert found.allowed == ["GET", "HEAD", "OPTIONS", "POST"]
    assert TABLE.find(["v1", "sessions", "", "events"]) is None
    assert TABLE.find(["v1", "sessions", "a", "b", "events"]) is None


def test_a_literal_wins_over_a_variable_and_gives_way_behind_it() -> None:
    table = Table(
        [route("GET", "/work/poll"), route("GET", "/work/{id}"), route("POST", "/work/{id}/ack")]
    )
    poll = table.find(["work", "poll"])
    ack = table.find(["work", "poll", "ack"])
    assert poll is not None
    assert poll.routes["GET"].template == "/work/poll"
    assert ack is not None
    assert ack.values == ("poll",)


def test_a_path_is_bound_once() -> None:
    with pytest.raises(BindingError, match="bound twice"):
        Table([route("GET", "/a/{x}"), route("GET", "/a/{y}")])


@pytest.mark.parametrize(
    ("asked", "suggested"),
    [
        ("/v1/sessions/sesn_1/messages", "/v1/sessions/{session_id}/events"),
        ("/v1/session/sesn_1/events", "/v1/sessions/{session_id}/events"),
        ("/sessions", "/v1/sessions"),
        ("/v1/agent", "/v1/agents"),
        ("/v1/sessions/sesn_1/events/", "/v1/sessions/{session_id}/events"),
    ],
)
def test_an_unknown_path_suggests_routes_like_it(asked: str, suggested: str) -> None:
    assert any(text.endswith(f" {suggested}") for text in TABLE.similar(asked))


def test_an_absurd_path_suggests_nothing_and_costs_nothing() -> None:
    assert TABLE.similar("/" + "q" * 100_000) == []
    assert TABLE.similar("") == []


def test_a_field_of_raw_json_is_the_whole_answer() -> None:
    (route,) = [route for route in ROUTES if route.method.name == "RebuildContextSnapshot"]
    body = b'{"model":"m", "n":1.10}'
    answer = snapshots_pb2.RebuildContextSnapshotResponse(body=body)
    assert Transcoder(route).response(answer) == body
