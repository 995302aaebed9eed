"""What tests of the example share: starting it, and reading afterwards what really happened."""

import asyncio
import json
import sqlite3
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic

from tests.support.processes import python_environment
from tests.support.system import System

REPO = Path(__file__).resolve().parents[2]
SECONDS_MAX = 60
PROMPT = "Decision [approve/reject]: "
PROGRAM = ("-m", "examples.hitl_gate")
DYING = ("-m", "tests.examples.dying")


@dataclass
class Run:
    """A run of the example that has ended."""

    code: int | None
    text: str

    @property
    def prompts(self) -> int:
        """How often the human was asked."""
        return self.text.count(PROMPT)


@dataclass
class Stage:
    """A running system, and the folder in which the example keeps its state."""

    system: System
    folder: Path

    @property
    def state(self) -> Path:
        """The example's state file."""
        return self.folder / "state.sqlite3"

    def environment(self, **more: str) -> dict[str, str]:
        """The environment in which the example runs."""
        return python_environment(COUNTERFOIL_EXAMPLE_BASE_URL=self.system.rest_url, **more)

    async def start(self, *program: str, **environment: str) -> Process:
        """Starts the example with pipes for its terminal."""
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *(program or PROGRAM),
            "--state",
            str(self.state),
            env=self.environment(**environment),
            cwd=REPO,
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT,
        )

    async def run(self, *program: str, typed: str = "", **environment: str) -> Run:
        """Runs the example to its end; `typed` is all that its human will ever type."""
        process = await self.start(*program, **environment)
        async with asyncio.timeout(SECONDS_MAX):
            text, _ = await process.communicate(typed.encode())
        self.system.notes.append(text.decode())
        return Run(process.returncode, text.decode())

    def resources(self) -> dict[str, str]:
        """What the example remembers, by kind."""
        with closing(sqlite3.connect(self.state)) as db:
            return dict(db.execute("SELECT kind, id FROM resource").fetchall())

    def decisions(self) -> dict[str, dict[str, Any]]:
        """The example's business record: the result of each receipt."""
        with closing(sqlite3.connect(self.state)) as db:
            rows = db.execute("SELECT receipt_id, result FROM decision").fetchall()
        assert len({receipt for receipt, _ in rows}) == len(rows)
        return {receipt: json.loads(result) for receipt, result in rows}

    async def check_history(self, session_id: str, decision: str = "reject") -> None:
        """Two calls, exactly one result each, one message in, one final idle."""
        client = self.system.client()
        events = [event async for event in client.beta.sessions.events.list(session_id)]
        calls = {event.id: event for event in events if event.type == "agent.custom_tool_use"}
        results = [event for event in events if event.type == "user.custom_tool_result"]
        assert {call.name for call in calls.values()} == {"decide", "escalate"}
        assert Counter(result.custom_tool_use_id for result in results) == Counter(list(calls))
        told: dict[str, Any] = {}
        for result in results:
            assert result.content is not None
            (block,) = result.content
            assert block.type == "text"
            told[calls[result.custom_tool_use_id].name] = json.loads(block.text)
        assert told["decide"]["decision"] == "approve"
        assert told["escalate"]["human_decision"] == decision
        assert [event.type for event in events].count("user.message") == 1
        idles = [event.stop_reason.type for event in events if event.type == "session.status_idle"]
        assert idles[-1] == "end_turn"
        assert idles.count("end_turn") == 1

    async def check_removed(self, resources: dict[str, str]) -> None:
        """Session and environment are gone, the agent is archived."""
        client = self.system.client()
        for kind, get in (
            ("session", client.beta.sessions.retrieve),
            ("environment", client.beta.environments.retrieve),
        ):
            if kind in resources:
                try:
                    await get(resources[kind])
                except anthropic.NotFoundError:
                    continue
                raise AssertionError(f"the {kind} is still there")
        if "agent" in resources:
            agent = await client.beta.agents.retrieve(resources["agent"])
            assert agent.archived_at is not None


async def read_until(process: Process, marker: str) -> str:
    """What the process prints up to and with `marker`."""
    assert process.stdout is not None
    async with asyncio.timeout(SECONDS_MAX):
        return (await process.stdout.readuntil(marker.encode())).decode()


async def read_to_end(process: Process, typed: str = "") -> Run:
    """Types the last thing, and reads what the process still prints."""
    async with asyncio.timeout(SECONDS_MAX):
        text, _ = await process.communicate(typed.encode())
    return Run(process.returncode, text.decode())
