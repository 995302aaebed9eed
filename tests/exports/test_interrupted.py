"""An import that dies anywhere is repeated; what it left is nobody's session until then."""

import pytest

from tests.exports.support import Pair, talk
from tests.support.chat import Chat


@pytest.mark.parametrize(
    "point",
    [
        "transcript.import.before",
        "transcript.import.after",
        "journal.import.after",
        "context.import.before",
        "context.import.after",
        "ledger.import.before",
    ],
)
async def test_a_killed_import_is_repeated(pair: Pair, point: str) -> None:
    chat = await talk(pair.source)
    lines = await pair.export(chat.id)
    await pair.target.kill()
    await pair.target.start(f"{point}=kill@1")
    done = await pair.take(lines)
    assert done.code == 1
    await pair.target.died()
    await pair.target.start()
    there = await pair.target.http().get(f"/v1/sessions/{chat.id}")
    assert there.status_code == 404
    done = await pair.take(lines)
    assert done.code == 0, done.err
    await pair.verify(chat.id)
    moved = Chat(pair.target, chat.id, pair.target.client())
    assert await moved.history() == await chat.history()
