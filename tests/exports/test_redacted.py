"""What was redacted does not come back with an export, and the places still verify."""

from tests.cli.looking import look
from tests.exports.support import Pair, talk


async def test_a_redacted_session_is_exported_without_what_is_gone(pair: Pair) -> None:
    chat = await talk(pair.source)
    said = next(e for e in await chat.history() if e["type"] == "user.custom_tool_result")
    words = ("context", "redact", chat.id, "--event", said["id"], "--reason", "leaked")
    done = await look(pair.source, *words)
    assert done.code == 0, done.err
    lines = await pair.export(chat.id)
    assert not [line for line in lines if b"noted" in line]
    moved = await pair.moved(chat.id)
    assert await moved.history() == await chat.history()
