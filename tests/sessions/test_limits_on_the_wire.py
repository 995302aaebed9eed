"""One beyond each limit is a 400 on the wire that names the place and stores nothing."""

import json
from typing import Any
from urllib.parse import quote

import httpx2

from gateway.app import CONTRACTS
from gateway.routes import Route, routes_of
from tests.support.limits import Case, Request, cases_of
from tests.support.posts import BODIES, Things
from tests.support.system import System

SENT_BYTES_MAX = 256 * 1024
FREE = ("string.min_len", "string.max_len", "map.max_pairs", "map.keys.string.max_len")
"""Rules of fields that mean nothing to the server, so that any value within them is accepted."""


def _url(route: Route, request: Request, things: Things) -> str | None:
    """Where to send it; None for what no path can say."""
    values: list[str] = []
    for name, value in zip(route.variables, request.values, strict=True):
        values.append(things.ids[name] if value == f"{name}_1" else quote(value, safe=""))
    if not all(values):
        return None
    path = route.template.format(**dict(zip(route.variables, values, strict=True)))
    return f"{path}?{request.query.decode()}"


async def _refused(
    http: httpx2.AsyncClient, case: Case, request: Request, things: Things
) -> str | None:
    """What is wrong with the answer to one beyond; None for nothing."""
    url = _url(case.route, request, things)
    if url is None or request.size > SENT_BYTES_MAX:
        return None
    answer = await http.request(case.route.verb, url, content=request.body)
    error = answer.json()["error"]
    if (answer.status_code, error["type"]) != (400, "invalid_request_error"):
        return f"{case.name}: {answer.status_code} {error}"
    if error["message"].partition(": ")[0] not in case.paths:
        return f"{case.name}: {error['message']}"
    return None


async def _state(http: httpx2.AsyncClient) -> list[Any]:
    found: list[Any] = []
    for name in ("agents", "environments", "sessions"):
        listed = (await http.get(f"/v1/{name}?include_archived=true")).json()
        found.append([{**one, "stats": None} for one in listed["data"]])
    histories = [f"/v1/sessions/{one['id']}/events" for one in found[-1]]
    return [*found, *[(await http.get(path)).json() for path in histories]]


async def test_one_beyond_each_limit_is_400_by_path_and_stores_nothing(
    running_system: System,
) -> None:
    http = running_system.http()
    things = await Things.make(http)
    before = await _state(http)
    wrong = [
        found
        for route in routes_of(CONTRACTS)
        for case in cases_of(route)
        if not case.large
        for bad in case.bad
        if (found := await _refused(http, case, bad(), things)) is not None
    ]
    assert not wrong, "\n".join(wrong)
    assert await _state(http) == before


async def test_the_limits_of_free_texts_are_stored(running_system: System) -> None:
    http = running_system.http()
    things = await Things.make(http)
    for route in routes_of(CONTRACTS):
        if route.method.name not in BODIES or route.method.name == "SubmitEvents":
            continue
        for case in cases_of(route):
            key = case.path.split(".")[0]
            if case.rule not in FREE or key.endswith("_id") or not case.field.endswith(f".{key}"):
                continue
            value = json.loads(case.good[0]().body)[key]
            body = {**(things.body(route) or {}), key: value}
            answer = await http.post(things.path(route), json=body)
            assert answer.status_code == 200, (case.name, answer.text)
            assert answer.json()[key] == value, case.name
            if route.method.name == "CreateEnvironment":  # its name is free for the update again
                await http.post(f"/v1/environments/{answer.json()['id']}/archive")
