"""Every client plays every scenario against a running system."""

import pytest

from foundation.settings import DEVELOPMENT_KEY
from tests.conformance.client import Client
from tests.conformance.scenarios import SCENARIOS, Scenario, filters, looking
from tests.support.system import System

FULL = ["anthropic_0_94_sync", "anthropic_0_94_async", "anthropic_node", "grpc_js", "grpc_go"]
CLIENTS = [
    "anthropic_sync",
    "anthropic_async",
    "counterfoil_python",
    *(pytest.param(name, marks=pytest.mark.full) for name in FULL),
]

LATER = (filters, looking)
"""What anthropic 0.94 has no methods for: the events of a type, and threads."""


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: getattr(one, "__name__", ""))
@pytest.mark.parametrize("name", CLIENTS)
async def test_the_client_plays(
    name: str, scenario: Scenario, system: System, request: pytest.FixtureRequest
) -> None:
    if name.startswith("anthropic_0_94") and scenario in LATER:
        pytest.skip("this version of the SDK has no methods for it")
    client: Client = request.getfixturevalue(name)
    await client.do(
        "connect",
        rest_url=system.rest_url,
        grpc_address=system.addresses["ledger"],
        key=DEVELOPMENT_KEY,
    )
    await scenario(client, system.model)
