"""Every client plays every scenario against a running system."""

import pytest

from foundation.settings import DEVELOPMENT_KEY
from tests.conformance.client import Client
from tests.conformance.scenarios import SCENARIOS, Scenario, filters, looking
from tests.support.system import System

QUICK = ["anthropic_sync"]
OLD = ["anthropic_0_94_sync", "anthropic_0_94_async"]
FULL = ["anthropic_async", "counterfoil_python", *OLD, "anthropic_node", "grpc_js", "grpc_go"]
LATER = (filters, looking)
"""What old versions of the SDK have no methods for: the events of a type, and threads."""

PLAYS = [
    pytest.param(
        name,
        scenario,
        marks=[pytest.mark.full] if name in FULL else [],
        id=f"{name}-{getattr(scenario, '__name__', '')}",
    )
    for name in (*QUICK, *FULL)
    for scenario in SCENARIOS
    if not (name in OLD and scenario in LATER)
]


@pytest.mark.parametrize(("name", "scenario"), PLAYS)
async def test_the_client_plays(
    name: str, scenario: Scenario, system: System, request: pytest.FixtureRequest
) -> None:
    client: Client = request.getfixturevalue(name)
    await client.do(
        "connect",
        rest_url=system.rest_url,
        grpc_address=system.addresses["ledger"],
        key=DEVELOPMENT_KEY,
    )
    await scenario(client, system.model)
