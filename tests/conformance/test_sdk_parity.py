"""`docs/sdk-parity.md` is what SDK, contracts and gateway say, and what it says holds."""

import re

from gateway.app import CONTRACTS
from gateway.routes import Table, routes_of
from gateway.unsupported import FEATURES, feature_of
from tests.support.system import System
from tools import sdk_parity


def test_the_page_is_what_the_sdk_and_the_contracts_say() -> None:
    assert sdk_parity.PAGE.read_text() == sdk_parity.page(), "run `python -m tools.sdk_parity`"


def test_what_is_served_is_in_no_list_of_what_is_not() -> None:
    assert [r.template for r in routes_of(CONTRACTS) if feature_of(r.template)] == []


def test_every_refused_feature_has_a_method() -> None:
    used = {feature.name for m in sdk_parity.methods() if (feature := feature_of(m.path))}
    assert used == {feature.name for feature in FEATURES}


async def test_what_is_not_supported_is_refused_by_name(system: System) -> None:
    table = Table(routes_of(CONTRACTS))
    http = system.http()
    refused = [m for m in sdk_parity.methods() if not sdk_parity.is_served(m, table)]
    assert refused
    for method in refused:
        feature = feature_of(method.path)
        if feature is None:
            continue
        path = re.sub(r"\{\w+\}", "some_id", method.path)
        response = await http.request(method.verb, path)
        assert response.status_code == 404, method
        body = response.json()
        assert body["type"] == "error"
        assert body["error"]["type"] == "not_found_error"
        assert f"{feature.name} are not supported" in body["error"]["message"]
        assert response.headers["request-id"] == body["request_id"]
