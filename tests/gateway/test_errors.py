"""Every reason has one status, one type and one set of headers; nothing internal leaks."""

import re

import httpx2
import pytest
from counterfoil.types.v1 import error_reason_pb2 as reasons
from structlog.testing import capture_logs

from tests.gateway.support import SESSION, Behaviour, failing

TABLE = {
    "INVALID_FIELD": (400, "invalid_request_error", None),
    "WRONG_STATE": (400, "invalid_request_error", None),
    "ACTION_REFUSED": (400, "invalid_request_error", None),
    "UNSUPPORTED": (400, "invalid_request_error", None),
    "UNAUTHENTICATED": (401, "authentication_error", None),
    "PERMISSION_DENIED": (403, "permission_error", None),
    "NOT_FOUND": (404, "not_found_error", None),
    "METHOD_NOT_ALLOWED": (405, "invalid_request_error", "false"),
    "CONFLICT": (409, "conflict_error", "false"),
    "TOO_LARGE": (413, "request_too_large", None),
    "RATE_LIMITED": (429, "rate_limit_error", "true"),
    "FENCED": (500, "api_error", None),
    "HEAD_MISMATCH": (500, "api_error", None),
    "DIGEST_MISMATCH": (500, "api_error", None),
    "OPERATION_REFUSED": (500, "api_error", None),
    "GAP": (500, "api_error", None),
    "CORRUPT": (500, "api_error", None),
    "DEADLINE_EXCEEDED": (504, "timeout_error", None),
    "UNAVAILABLE": (503, "api_error", "true"),
    "DELETED": (500, "api_error", None),
    "INTERNAL": (500, "api_error", None),
    "ENVIRONMENT_NOT_FOUND": (404, "not_found_error", None),
    "ENVIRONMENT_ARCHIVED": (400, "invalid_request_error", None),
    "CONFIG_TYPE_CHANGE": (400, "invalid_request_error", None),
    "INVALID_METADATA": (400, "invalid_request_error", None),
    "AGENT_MODEL_REQUIRED": (400, "invalid_request_error", None),
}
CODES = {
    "ENVIRONMENT_NOT_FOUND": "environment_not_found",
    "ENVIRONMENT_ARCHIVED": "environment_archived",
    "CONFIG_TYPE_CHANGE": "invalid_config_type_change",
    "INVALID_METADATA": "invalid_metadata",
    "AGENT_MODEL_REQUIRED": "agent_model_required",
}
SECRET = "10.0.0.7 epoch 4"


def test_the_table_is_complete() -> None:
    values = reasons.ErrorReason.DESCRIPTOR.values
    names = {value.name.removeprefix("ERROR_REASON_") for value in values}
    assert names == {*TABLE, "UNSPECIFIED"}


@pytest.mark.parametrize("name", TABLE)
async def test_reason_to_status_body_and_headers(
    client: httpx2.AsyncClient, behaviour: Behaviour, name: str
) -> None:
    status, type_, retry = TABLE[name]
    reason = reasons.ErrorReason.Value(f"ERROR_REASON_{name}")
    behaviour.failure = failing(reason, SECRET, path="a.0")
    response = await client.get(f"/v1/sessions/{SESSION}")
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    assert response.headers.get("x-should-retry") == retry
    assert ("retry-after" in response.headers) == (status == 503)
    body = response.json()
    assert list(body) == ["type", "error", "request_id"]
    assert body["type"] == "error"
    assert body["error"]["type"] == type_
    details = {"error_code": CODES[name]} if name in CODES else None
    assert body["error"].get("details") == details
    assert body["request_id"] == response.headers["request-id"]
    if status < 500:
        assert body["error"]["message"] == f"a.0: {SECRET}"
    else:
        assert SECRET not in response.text


async def test_a_defect_leaks_nothing_and_is_logged_with_the_request_id(
    client: httpx2.AsyncClient, behaviour: Behaviour
) -> None:
    behaviour.data = [b""]  # has no JSON form: rendering fails in the gateway itself
    with capture_logs() as logs:
        response = await client.get(f"/v1/sessions/{SESSION}/events")
    assert response.status_code == 500
    assert "raw JSON" not in response.text
    (entry,) = [entry for entry in logs if entry["event"] == "unexpected error"]
    assert entry["request_id"] == response.headers["request-id"]


async def test_every_response_has_a_request_id_of_its_own(client: httpx2.AsyncClient) -> None:
    paths = ["/healthz", "/readyz", "/nothing", f"/v1/sessions/{SESSION}", "/v1/agents"]
    responses = [await client.get(path) for path in paths]
    responses.append(await client.options("/v1/agents"))
    found = [response.headers["request-id"] for response in responses]
    assert all(re.fullmatch(r"req_[0-9a-z]{26}", id) for id in found)
    assert len(set(found)) == len(found)


async def test_the_request_id_reaches_the_service(
    client: httpx2.AsyncClient, behaviour: Behaviour
) -> None:
    response = await client.get(f"/v1/sessions/{SESSION}", headers={"x-request-id": "mine"})
    assert behaviour.contexts[0].request_id == response.headers["request-id"] != "mine"


async def test_an_unknown_path_is_a_json_404_that_helps(client: httpx2.AsyncClient) -> None:
    response = await client.post("/v1/sessions/sesn_1/messages", json={})
    assert response.status_code == 404
    error = response.json()["error"]
    assert error["type"] == "not_found_error"
    assert "GET, POST /v1/sessions/{session_id}/events" in error["message"]


async def test_an_absurd_path_is_clipped(client: httpx2.AsyncClient) -> None:
    response = await client.get("/" + "q" * 20_000)
    assert response.status_code == 404
    assert len(response.content) < 400


async def test_another_method_is_a_json_405_that_says_which(client: httpx2.AsyncClient) -> None:
    response = await client.put("/v1/sessions")
    assert response.status_code == 405
    assert response.headers["allow"] == "GET, HEAD, OPTIONS, POST"
    assert response.headers["x-should-retry"] == "false"
    assert response.json()["error"]["message"] == (
        "PUT is not allowed on /v1/sessions; allowed: GET, HEAD, OPTIONS, POST"
    )
    assert (await client.post("/healthz")).status_code == 405


async def test_options_says_what_is_allowed(client: httpx2.AsyncClient) -> None:
    response = await client.options(f"/v1/sessions/{SESSION}/events")
    assert (response.status_code, response.content) == (204, b"")
    assert response.headers["allow"] == "GET, HEAD, OPTIONS, POST"


async def test_head_is_get_without_its_body(http: httpx2.AsyncClient) -> None:
    path = f"/v1/sessions/{SESSION}"
    head, get = await http.head(path), await http.get(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == get.headers["content-length"]
    assert (await http.head(f"{path}/archive")).status_code == 405
