"""What turns run with: every process sees an update, and a turn that began keeps what it had."""

from datetime import UTC, datetime

import pytest
from counterfoil.types.v1 import runtime_pb2

from services.ledger import lane_store, session_store
from services.ledger.runtimes import Runtimes
from tests.services.ledger.turns.driver import WORKSPACE, Ledger


@pytest.mark.parametrize("began", [False, True])
async def test_an_update_reaches_the_copies_of_other_processes(ledger: Ledger, began: bool) -> None:
    await ledger.create("go")
    key = WORKSPACE, ledger.thread.session_id
    here, there = Runtimes(ledger.ring), Runtimes(ledger.ring)

    async def systems() -> list[str]:
        async with ledger.db.commit("ledger.update_session") as connection:
            lane = await lane_store.lock(connection, *key, datetime.now(UTC))
            assert lane is not None
            return [(await one.of(connection, lane)).system for one in (here, there)]

    assert await systems() == ["be kind"] * 2
    for text in ("be new", "be newer"):
        new = runtime_pb2.SessionRuntime(model="model-1", system=text)
        async with ledger.db.commit("ledger.update_session") as connection:
            lane = await lane_store.lock(connection, *key, datetime.now(UTC))
            assert lane is not None
            lane.turns[0].marked = began
            await session_store.replace_runtime(connection, ledger.ring, lane, new)
        assert await systems() == ["be kind" if began else text] * 2
