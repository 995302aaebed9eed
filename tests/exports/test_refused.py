"""What is not a whole, unchanged export is refused by line, and nothing of it is stored."""

from collections.abc import Callable

import pytest

from tests.exports.support import Pair, talk
from tests.exports.tampering import Lines, changed, sealed_again, without
from tests.support.chat import Chat

CUT_OFF: dict[str, tuple[Callable[[Lines], Lines], str]] = {
    "an empty file": (lambda lines: [], "does not begin with its type"),
    "no export": (lambda lines: [b"{}\n"], "does not begin with its type"),
    "half of it": (lambda lines: lines[: len(lines) // 2], "lines are missing"),
    "without its end": (lambda lines: lines[:-1], "lines are missing"),
    "half a line": (lambda lines: [*lines[:-1], lines[-1][:-9]], "cut off"),
    "a line more": (lambda lines: [*lines, lines[-1]], "behind the end"),
    "a line less": (without("ledger.log"), "were exported, but"),
    "a changed line": (changed("ledger.log", b"noted", b"NOTED"), "not those that were exported"),
    "another version": (changed("export.begin", b'"v":1', b'"v":9'), "another version"),
}

CHANGED: dict[str, tuple[Callable[[Lines], Lines], str]] = {
    "an answer": (changed("transcript.entry", b'"text":"done"', b'"text":"gone"'), "commitment"),
    "an entry less": (without("transcript.entry"), "do not end with entry"),
    "an event": (changed("ledger.log", b"noted", b"NOTED"), "commitment"),
    "an event's type": (changed("ledger.log", b"agent.message", b"agent.massage"), "digest"),
    "an event less": (without("ledger.log"), "log"),
    "the order of members": (
        changed("ledger.turns", b'"v":1,', b'"v":1,"again":1,'),
        "no member of this line",
    ),
    "another spelling": (changed("ledger.turns", b'"v":1,', b'"v":1, '), "spelled"),
    "a member twice": (
        changed("ledger.turns", b'"marked":true', b'"marked":true,"marked":true'),
        "spelled",
    ),
    "a wrong type": (changed("ledger.turns", b'"marked":true', b'"marked":1'), "marked"),
    "a null": (changed("ledger.turns", b'"marked":true', b'"marked":null'), "marked"),
    "a missing member": (changed("ledger.turns", b'"marked":true,', b""), "marked"),
    "an unknown line": (changed("ledger.turns", b"ledger.turns", b"ledger.thing"), "ledger.thing"),
    "an unknown version": (changed("ledger.turns", b'"v":1', b'"v":2'), "v: must be 1"),
    "no session": (without("ledger.session"), "session"),
    "no thread": (without("ledger.thread"), "session"),
}


@pytest.fixture
async def chat(pair: Pair) -> Chat:
    """A session of the source."""
    return await talk(pair.source)


async def assert_refused(pair: Pair, lines: Lines, message: str, name: str) -> None:
    said = await pair.refusal(lines)
    assert message in said, f"{name}: {said}"


async def test_a_file_that_is_not_whole_or_was_changed_is_refused(pair: Pair, chat: Chat) -> None:
    lines = await pair.export(chat.id)
    before = await pair.stored()
    for name, (change, message) in CUT_OFF.items():
        await assert_refused(pair, change(lines), message, name)
    for name, (change, message) in CHANGED.items():
        await assert_refused(pair, sealed_again(change(lines)), message, name)
    assert (await pair.target.http().get(f"/v1/sessions/{chat.id}")).status_code == 404
    # The installation is as empty as it was, so it takes the session of another one, too.
    assert await pair.stored() == before
    assert (await pair.take(lines)).code == 0
    await pair.verify(chat.id)
    done = await pair.take(lines)
    assert (done.code, done.err.count("\n")) == (1, 1)
    # And whoever is here stays as it is.
    await assert_refused(pair, lines, f"session {chat.id} is here already", "again")


async def test_an_installation_in_use_takes_no_foreign_workspace(pair: Pair, chat: Chat) -> None:
    own = await talk(pair.target)
    lines = await pair.export(chat.id)
    await assert_refused(pair, lines, "this installation is not empty", "in use")
    assert (await own.history())[-1]["type"] == "session.status_idle"


async def test_nobody_exports_what_is_not_theirs(pair: Pair, chat: Chat) -> None:
    foreign = await pair.target.http().get(f"/v1/sessions/{chat.id}/export")
    assert foreign.status_code == 404
    nobody = await pair.source.http(None).get(f"/v1/sessions/{chat.id}/export")
    assert nobody.status_code == 401
    for path in ("sesn_nothing", "x" * 300):
        assert (await pair.source.http().get(f"/v1/sessions/{path}/export")).status_code in (
            400,
            404,
        )
    head = await pair.source.http().head(f"/v1/sessions/{chat.id}/export")
    assert (head.status_code, head.content) == (200, b"")
