"""A redacted event says that it was redacted; a body that was replaced otherwise is found."""

import json

import pytest

from foundation.digests import new_salt
from foundation.outcomes import REDACTED_INPUT
from foundation.storage import Database
from foundation.storage.testing import assert_sql_prepares
from services.ledger import log_chain, redaction_store
from services.ledger.redacting import redacted_body
from tests.services.ledger.log.support import RING, WORKSPACE
from tests.services.ledger.log.test_verify import change, verify, write_log

SESSION = (WORKSPACE, "s")


async def replace(db: Database, position: int, *, sealed_for: int | None) -> None:
    """Replace a body, with the record of a redaction of `sealed_for`; None for no record."""
    row = await db.fetchrow("SELECT * FROM ledger.log WHERE position = $1", position)
    assert row is not None
    body = b'{"id":"e1","type":"user.message","content":[]}'
    writer = log_chain.writer(RING, *SESSION)
    sealed = writer.seal(new_salt(), body, position, row["event_id"])
    if sealed_for is None:
        await change(db, "UPDATE ledger.log SET sealed = $2 WHERE position = $1", position, sealed)
        return
    seal = log_chain.seal_redaction(RING, *SESSION, sealed_for, row["commitment"])
    async with db.commit("ledger.test") as c:
        await redaction_store.replace(c, SESSION, position, sealed, seal)


async def findings(db: Database) -> list[tuple[int, str, bool]]:
    return [(f.seq, f.message, f.informational) for f in (await verify(db)).findings]


async def test_every_statement_prepares(dsn: str) -> None:
    assert await assert_sql_prepares(redaction_store, dsn) == 11


async def test_a_redacted_body_is_reported_and_is_no_damage(db: Database) -> None:
    await write_log(db)
    await replace(db, 1, sealed_for=1)
    assert await findings(db) == [(1, "the content was redacted", True)]


@pytest.mark.parametrize("sealed_for", [None, 4])
async def test_a_body_that_was_replaced_without_a_record_is_damage(
    db: Database, sealed_for: int | None
) -> None:
    await write_log(db)
    await replace(db, 1, sealed_for=sealed_for)
    assert await findings(db) == [(1, "the content does not match its commitment", False)]


def test_a_redacted_event_keeps_everything_but_its_content_or_input() -> None:
    body = b'{"id":"e","type":"user.custom_tool_result","content":[{"x":1}],"is_error":true}'
    redacted = redacted_body(body, "gone")
    assert redacted is not None
    assert json.loads(redacted) == {
        "id": "e",
        "type": "user.custom_tool_result",
        "content": [{"type": "text", "text": "gone"}],
        "is_error": True,
    }
    use = b'{"id":"e","type":"agent.tool_use","name":"t","input":{"secret":1}}'
    assert redacted_body(use, "gone") == (
        b'{"id":"e","type":"agent.tool_use","name":"t","input":' + REDACTED_INPUT + b"}"
    )
    assert redacted_body(b'{"id":"e","type":"user.tool_confirmation"}', "gone") is None
