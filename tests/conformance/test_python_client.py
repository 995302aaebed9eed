"""`clients/python` does what its README says, and misses nothing when the server goes away."""

import asyncio
import os
import re
import sys
from typing import Any

import pytest
from counterfoil_client import Counterfoil, CustomTool, Event, RefusedError, message, tool_result
from counterfoil_client.gen.counterfoil.context.v1 import (
    ListContextSnapshotsRequest,
    RebuildContextSnapshotRequest,
    SnapshotOutcome,
)

from foundation.settings import DEVELOPMENT_KEY
from tests.conformance.installs import REPO
from tests.support.model import script, text, use
from tests.support.system import System

README = REPO / "clients" / "python" / "README.md"


def connect(system: System) -> Counterfoil:
    host, _, port = system.addresses["ledger"].rpartition(":")
    return Counterfoil(host, int(port), key=DEVELOPMENT_KEY)


async def test_the_readme_works_as_printed(system: System) -> None:
    found = re.search(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    port = system.addresses["ledger"].rpartition(":")[2]
    assert found[1].count("8081") == 1
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", found[1].replace("8081", port)),
        env={"PATH": os.defpath, "PYTHONPATH": str(REPO / "clients" / "python")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await program.communicate()
    assert program.returncode == 0, err.decode()
    types = [line.split()[0] for line in out.decode().splitlines()]
    assert "agent.custom_tool_use" in types
    assert types[-1] == "session.status_idle"


async def test_a_stream_goes_on_where_a_dead_server_left_it(system: System) -> None:
    async with connect(system) as client:
        tool = CustomTool("weather", "The weather.", {"text": {"type": "string"}})
        agent = await client.create_agent("guide", model="any", tools=[tool])
        environment = await client.create_environment("guide")
        session = await client.create_session(agent.id, environment.id)
        asks = script({"content": [use("weather", text="Oslo")]}, {"content": [text("Warm.")]})
        before: list[Event] = await session.ask(asks)
        assert before[-1].stop_reason == "requires_action"
        (call,) = (event for event in before if event.type == "agent.custom_tool_use")
        rest: Any = asyncio.create_task(session.until_idle())
        await system.kill()
        await system.start()
        await session.send(tool_result(call, "25 degrees"))
        after: list[Event] = await rest
        assert after[-1].stop_reason == "end_turn"
        history = await session.history()
        seen = [event for event in before + after if not event.queued]
        assert [event.data for event in seen] == [event.data for event in history]
        echo = (await session.send(message("more"), idempotency_key="key-1"))[0]
        again = (await session.send(message("more"), idempotency_key="key-1"))[0]
        assert echo == again


async def test_what_the_model_saw_can_be_read(system: System) -> None:
    async with connect(system) as client:
        agent = await client.create_agent("guide", model="any")
        environment = await client.create_environment("guide")
        session = await client.create_session(agent.id, environment.id)
        await session.ask(script({"content": [text("hello")]}))
        listed = await client.context_snapshots.list_context_snapshots(
            ListContextSnapshotsRequest(session_id=session.id)
        )
        (snapshot,) = listed.data
        assert snapshot.outcome is SnapshotOutcome.ANSWERED
        rebuilt = await client.context_snapshots.rebuild_context_snapshot(
            RebuildContextSnapshotRequest(session_id=session.id, snapshot_id=snapshot.id)
        )
        (asked,) = await system.model.asked()
        assert rebuilt.body == asked.body


async def test_a_fork_goes_its_own_way(system: System) -> None:
    async with connect(system) as client:
        agent = await client.create_agent("guide", model="any")
        environment = await client.create_environment("guide")
        session = await client.create_session(agent.id, environment.id)
        ends: list[Event] = []
        for number in range(2):
            ends += (await session.ask(script({"content": [text(f"turn {number}")]})))[-1:]
        fork = await session.fork(ends[0], title="a branch", idempotency_key="fork 1")
        again = await session.fork(ends[0], title="a branch", idempotency_key="fork 1")
        assert again.id == fork.id != session.id
        assert await fork.history() == []
        (said,) = [e for e in await session.history() if e.text == "turn 0"]
        assert (await session.fork(said)).id != fork.id
        with pytest.raises(RefusedError, match="inside a turn"):
            await session.fork((await session.history())[2])
        await fork.ask(script({"content": [text("elsewhere")]}))
        asked = await system.model.asked()
        assert len(asked[-1].messages) == 3
