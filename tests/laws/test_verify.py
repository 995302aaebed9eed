"""`counterfoil verify`: both chains end to end, each vouching for the other; changes are named."""

import asyncio
import json
import sys
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from tests.support.chat import Chat, custom_tool, is_over, message, result
from tests.support.model import script, text, use
from tests.support.system import System

TOOL = custom_tool("record")


@dataclass(frozen=True)
class Verdict:
    """What the command said."""

    code: int
    output: str

    def head(self, what: str) -> str:
        """The printed head of the log or the transcript."""
        (line,) = [line for line in self.output.splitlines() if line.startswith(what)]
        return line.rsplit(" ", 1)[1]


async def verify(chat: Chat, *options: str) -> Verdict:
    """Runs the command as an operator does."""
    system = chat.system
    environment = {
        **system.environment,
        **{f"COUNTERFOIL_{k.upper()}_ADDRESS": v for k, v in system.addresses.items()},
        "COUNTERFOIL_SERVICE_KEY_FILE": str(system.folder / "service_key"),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "cli",
        "verify",
        chat.id,
        *options,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return Verdict(process.returncode or 0, output.decode())


async def tamper(system: System, sql: str, *arguments: Any) -> None:
    """Changes rows as somebody with the database in hands can: triggers do not stop an owner."""
    connection = await asyncpg.connect(system.environment["COUNTERFOIL_LEDGER_DATABASE_URL"])
    try:
        await connection.execute("SET session_replication_role = replica")
        done = await connection.execute(sql, *arguments)
        assert not done.endswith(" 0"), done
    finally:
        await connection.close()


@pytest.fixture
async def chat(running_system: System) -> Chat:
    """A session with two turns, one of which was parked."""
    chat = await Chat.open(running_system, tools=[TOOL])
    async with chat.stream() as stream:
        steps = ({"content": [use("record", text="a")]}, {"content": [text("done")]})
        await chat.send(message(script(*steps)))
        use_event = (await stream.until(lambda e: e["type"] == "agent.custom_tool_use"))[-1]
        await chat.send(result(use_event["id"], "noted"))
        await stream.until(is_over)
    await chat.say("and a second turn")
    return chat


async def test_an_untouched_session_holds_and_gives_heads_to_keep(chat: Chat) -> None:
    verdict = await verify(chat)
    assert verdict.code == 0, verdict.output
    assert "Everything holds." in verdict.output
    kept = ("--head", verdict.head("log"), "--transcript-head", verdict.head("transcript"))
    await chat.say("a third turn")
    later = await verify(chat, *kept)
    assert later.code == 0, later.output


async def test_programs_get_the_verdict_as_one_object(chat: Chat) -> None:
    for_people = await verify(chat)
    found = json.loads((await verify(chat, "-o", "json")).output)
    assert (found["session_id"], found["holds"], found["broken"]) == (chat.id, True, [])
    for log in ("log", "transcript"):
        assert found[log]["head"] == for_people.head(log)
    await tamper(chat.system, *flipped_log_body(chat))
    verdict = await verify(chat, "-o", "json")
    found = json.loads(verdict.output)
    assert verdict.code == 1
    assert not found["holds"]
    assert found["broken"][0].startswith("log 5:")


def flipped_log_body(chat: Chat) -> tuple[str, str]:
    """The arguments of `tamper` that change a public event."""
    return TAMPERED["log body"][0], chat.id


def flipped(table: str, column: str, where: str) -> str:
    """A statement that changes one bit of one column of one row."""
    at = f"40 % length({column})"
    changed = f"set_byte({column}, {at}, get_byte({column}, {at}) # 1)"
    return f"UPDATE {table} SET {column} = {changed} WHERE session_id = $1 AND {where}"


TAMPERED = {
    "log body": (flipped("ledger.log", "sealed", "position = 5"), "log 5:"),
    "log digest": (flipped("ledger.log", "digest", "position = 7"), "log 7:"),
    "log head": (flipped("ledger.sessions", "log_digest", "true"), "log 0:"),
    "transcript body": (flipped("transcript.entries", "content", "seq = 2"), "transcript 2:"),
    "transcript digest": (flipped("transcript.entries", "digest", "seq = 3"), "transcript 3:"),
}


@pytest.mark.parametrize(("sql", "named"), TAMPERED.values(), ids=TAMPERED)
async def test_a_flipped_byte_is_named(chat: Chat, sql: str, named: str) -> None:
    await tamper(chat.system, sql, chat.id)
    verdict = await verify(chat)
    assert verdict.code == 1, verdict.output
    (first, *_) = [line for line in verdict.output.splitlines() if line.startswith("BROKEN")]
    assert named in first


async def test_a_transcript_that_was_cut_with_its_head_contradicts_the_log(chat: Chat) -> None:
    """Whoever forges one chain completely is given away by the other."""
    before = await verify(chat)
    await chat.say("a third turn")
    system = chat.system
    await tamper(
        system, "DELETE FROM transcript.entries WHERE session_id = $1 AND seq > 6", chat.id
    )
    after = await verify(chat, "--transcript-head", before.head("transcript"))
    assert after.code == 1
    assert "log position" in after.output
    assert "missing" in after.output


async def test_a_log_whose_tail_was_taken_is_seen_from_a_kept_head(chat: Chat) -> None:
    kept = (await verify(chat)).head("log")
    position, digest = kept.split(":")
    forged = f"{int(position) + 3}:{digest}"
    verdict = await verify(chat, "--head", forged)
    assert verdict.code == 1
    assert "its tail is missing" in verdict.output
