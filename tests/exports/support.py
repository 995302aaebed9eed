"""Sessions that go from one installation to another."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from cli.importing.sending import import_session
from foundation.errors import Failure
from foundation.settings import Settings
from tests.cli.looking import Done, environment, look
from tests.support.chat import Chat, custom_tool, is_over, message, result
from tests.support.model import script, text, use
from tests.support.system import System

_TABLES = """
SELECT format('%I.%I', table_schema, table_name) FROM information_schema.tables
WHERE table_schema NOT IN ('pg_catalog', 'information_schema')
"""


@dataclass(frozen=True)
class Pair:
    """The installation that has a session, and the one that gets it."""

    source: System
    target: System

    @property
    def file(self) -> Path:
        """Where an export is kept."""
        return self.target.folder.parent / "session.jsonl"

    async def export(self, session_id: str) -> list[bytes]:
        """Export a session of the source with the command; its lines."""
        done = await look(self.source, "export", session_id, "--output", str(self.file))
        assert done.code == 0, done.err
        return self.file.read_bytes().splitlines(keepends=True)

    async def take(self, lines: list[bytes] | None = None) -> Done:
        """Import the file, or these lines, with the command."""
        if lines is not None:
            self.file.write_bytes(b"".join(lines))
        return await look(self.target, "import", str(self.file))

    async def refusal(self, lines: list[bytes]) -> str:
        """Why the target takes these lines not; the command says the same."""
        self.file.write_bytes(b"".join(lines))
        given = {
            name.removeprefix("COUNTERFOIL_").lower(): value
            for name, value in environment(self.target).items()
            if name.startswith("COUNTERFOIL_")
        }
        with pytest.raises((Failure, ValueError)) as refused:
            await import_session(Settings.model_validate(given), str(self.file))
        return str(refused.value)

    async def moved(self, session_id: str) -> Chat:
        """The session on the target, once it is there and verifies."""
        await self.export(session_id)
        done = await self.take()
        assert done.code == 0, done.err
        await self.verify(session_id)
        return Chat(self.target, session_id, self.target.client())

    async def verify(self, session_id: str, *more: str) -> str:
        """Both chains hold on the target; what the command says."""
        done = await look(self.target, "verify", session_id, *more)
        assert done.code == 0, done.err + done.out
        return done.out

    async def stored(self) -> dict[str, int]:
        """How many rows every table of the target has, and the ids of its workspaces."""
        found = dict[str, int]()
        for url in {v for k, v in self.target.environment.items() if k.endswith("_DATABASE_URL")}:
            connection = await asyncpg.connect(url)
            try:
                for name in await connection.fetch(_TABLES):
                    found[name[0]] = await connection.fetchval(f"SELECT count(*) FROM {name[0]}")
                for row in await connection.fetch("SELECT id FROM registry.workspaces"):
                    found[row[0]] = 1
            finally:
                await connection.close()
        return found


def parsed(lines: list[bytes]) -> list[dict[str, Any]]:
    """Lines as objects."""
    return [json.loads(line) for line in lines]


async def talk(system: System, *more: dict[str, Any]) -> Chat:
    """A session with two turns, in the first of which the application answered a call, with these
    blocks behind its word."""
    chat = await Chat.open(system, tools=[custom_tool("record")])
    async with chat.stream() as stream:
        steps = ({"content": [use("record", text="a\u0000é\n")]}, {"content": [text("done")]})
        await chat.send(message(script(*steps)))
        use_event = (await stream.until(lambda e: e["type"] == "agent.custom_tool_use"))[-1]
        said = result(use_event["id"], "noted")
        said["content"] += more
        await chat.send(said)
        await stream.until(is_over)
    await chat.say(script({"content": [text("again")]}))
    return chat
