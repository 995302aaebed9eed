"""Seal keys rotate: old data opens, new data is sealed with the new key, a lost key is named."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import pytest
from typer.testing import CliRunner

from cli.main import app
from tests.support.chat import Chat, Event, message
from tests.support.invariants import check_chains
from tests.support.model import Model
from tests.support.postgres import SessionPostgres
from tests.support.system import Dead, System, system_of
from tests.support.zygote import Zygote


def command(*words: str) -> str:
    done = CliRunner().invoke(app, ["seal-keys", *words])
    assert done.exit_code == 0, done.output
    return done.output


def active(ring: Path) -> str:
    return json.loads(ring.read_text())["active"]


def without(ring: Path, key_id: str) -> str:
    """Takes a key out of the ring; the key."""
    document: dict[str, Any] = json.loads(ring.read_text())
    key = document["keys"].pop(key_id)
    ring.write_text(json.dumps(document))
    return key


def put_back(ring: Path, key_id: str, key: str) -> None:
    document: dict[str, Any] = json.loads(ring.read_text())
    document["keys"][key_id] = key
    ring.write_text(json.dumps(document))


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    file = tmp_path / "ring.json"
    command("generate", str(file))
    return file


@pytest.fixture
async def system(
    ring: Path, zygote: Zygote, model: Model, postgres: SessionPostgres
) -> AsyncGenerator[System]:
    chosen = {"COUNTERFOIL_SEAL_KEYS_FILE": str(ring)}
    async with system_of("embedded", zygote, model, postgres, **chosen) as made:
        await made.start()
        yield made


async def sealing_keys(system: System) -> dict[str, set[str]]:
    """Ids of the keys that sealed the values of each sealed column."""
    connection = await asyncpg.connect(system.environment["COUNTERFOIL_LEDGER_DATABASE_URL"])
    try:
        found: dict[str, set[str]] = {}
        for name in SEALED:
            table, _, column = name.rpartition(".")
            rows = await connection.fetch(f"SELECT {column} FROM {table}")
            found[name] = {row[0][2 : 2 + row[0][1]].decode() for row in rows if row[0]}
    finally:
        await connection.close()
    return found


SEALED = (
    "ledger.log.sealed",
    "ledger.sessions.pinned",
    "ledger.sessions.runtime",
    "transcript.entries.content",
)


async def replies(chat: Chat) -> list[Event]:
    return [event for event in await chat.history() if event["type"] == "agent.message"]


async def test_old_data_opens_and_new_data_is_sealed_with_the_new_key(
    system: System, ring: Path
) -> None:
    first = active(ring)
    old = await Chat.open(system, system_prompt="Be brief.")
    await old.say("one")
    assert set().union(*(await sealing_keys(system)).values()) == {first}

    await system.kill()
    said = command("rotate", str(ring))
    second = active(ring)
    assert second != first
    assert second in said
    await system.start()
    assert len(await replies(old)) == 1
    await old.say("two")
    new = await Chat.open(system)
    await new.say("three")
    assert len(await replies(old)) == 2
    await check_chains(old)
    for column, keys in (await sealing_keys(system)).items():
        assert keys == {first, second}, column


async def test_without_the_first_key_nothing_starts_and_the_log_says_why(
    system: System, ring: Path
) -> None:
    chat = await Chat.open(system)
    await chat.say("one")
    await system.kill()
    first = active(ring)
    command("rotate", str(ring))
    kept = without(ring, first)
    with pytest.raises(Dead):
        await system.start()
    assert "the key ring lacks a key" in system.diagnosis()

    put_back(ring, first, kept)
    await system.start()
    assert len(await replies(chat)) == 1


async def test_a_lost_key_fails_what_it_sealed_and_nothing_else(system: System, ring: Path) -> None:
    first = await Chat.open(system)
    await first.say("one")
    await system.kill()
    command("rotate", str(ring))
    lost = active(ring)
    await system.start()
    second = await Chat.open(system)
    await second.say("two")
    await system.kill()
    command("rotate", str(ring))
    without(ring, lost)
    await system.start()

    http = system.http()
    path = f"/v1/sessions/{second.id}"
    assert _failed(await http.get(path))
    assert _failed(await http.get(f"{path}/events"))
    body = {"events": [message("three")]}
    assert _failed(await http.post(f"{path}/events", json=body))
    assert "sealed data does not open" in system.diagnosis()
    await first.say("four")
    assert len(await replies(first)) == 2


def _failed(response: httpx2.Response) -> bool:
    """The failure of stored data, which tells clients nothing."""
    assert response.status_code == 500, response.text
    error = response.json()["error"]
    assert error["type"] == "api_error"
    return "internal error" in error["message"]


def test_generate_keeps_what_is_there_and_rotate_needs_a_ring(tmp_path: Path, ring: Path) -> None:
    before = ring.read_text()
    assert ring.stat().st_mode & 0o777 == 0o600
    for words in (("generate", str(ring)), ("rotate", str(tmp_path / "none.json"))):
        done = CliRunner().invoke(app, ["seal-keys", *words])
        assert done.exit_code == 1
        assert done.output.startswith("counterfoil: ")
        assert "Traceback" not in done.output
    assert ring.read_text() == before
