"""What the gateway says about itself needs no credential and loads nothing from elsewhere."""

import re

import httpx2
import pytest

from gateway.app import Gateway
from tests.gateway.support import client_of


@pytest.fixture
def stranger(app: Gateway) -> httpx2.AsyncClient:
    return client_of(app, authorization="")


async def test_the_first_page_links_the_contract_and_the_status(
    stranger: httpx2.AsyncClient,
) -> None:
    answer = await stranger.get("/", headers={"accept": "text/html,*/*"})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    for target in re.findall(r'(?:href|src)="([^"]+)"', answer.text):
        assert target.startswith("/")
        assert (await stranger.get(target)).status_code == 200
    assert "http:" not in answer.text
    assert "https:" not in answer.text


async def test_programs_get_json(stranger: httpx2.AsyncClient) -> None:
    answer = await stranger.get("/", headers={"accept": "application/json"})
    assert answer.json()["links"]["openapi"] == "/openapi.json"
    document = await stranger.get("/openapi.json")
    assert document.headers["content-type"] == "application/json"
    assert document.json()["openapi"] == "3.1.0"


async def test_other_methods_and_paths_are_answered_in_json(stranger: httpx2.AsyncClient) -> None:
    posted = await stranger.post("/")
    assert (posted.status_code, posted.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    assert posted.json()["error"]["type"] == "invalid_request_error"
    unknown = await stranger.get("/somewhere/else")
    assert unknown.status_code == 404
    assert "GET /openapi.json" in unknown.json()["error"]["message"]
    near = await stranger.get("/v1/agent")
    assert "/v1/agents" in near.json()["error"]["message"]
