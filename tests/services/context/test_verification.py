"""What was taken from a history can be checked later, and a changed record is named."""

import msgspec
import pytest
from counterfoil.context.v1 import context_pb2 as pb

from services.context.checkpoints import identified
from services.context.records import Records
from tests.services.context.conftest import THREAD, Bench
from tests.services.context.histories import projection, text
from tests.services.context.test_making_it_fit import round_of, small, turn_of

KEY = (THREAD.workspace_id, THREAD.session_id, THREAD.thread_id)


async def found(bench: Bench, *, requests: bool = True) -> list[str]:
    request = pb.VerifyContextRequest(thread=THREAD, requests=requests)
    response = await bench.another().VerifyContext(request, None)
    return [one.message for one in response.findings]


async def talked(bench: Bench) -> None:
    """A history with archived results and two summaries, one of them in the middle of a turn."""
    pinned = small(archive=True)
    for number in range(9):
        await turn_of(bench, f"t{number}", f"<r{number}>" + "x" * 6_600)
        await bench.ask(text("next?"))
        await bench.prepare(round=number, pinned=pinned)
        await bench.answer(text("yes"))
    await bench.ask(text("one long turn"))
    for number in range(12):
        await round_of(bench, f"l{number}", projection("y" * 5_000))
        await bench.prepare(round=20 + number, pinned=small())


async def change(bench: Bench, statement: str) -> None:
    """Do what only somebody with the database can do."""
    async with bench.db.commit("test") as connection:
        for table in ("transitions", "checkpoints"):
            await connection.execute(f"ALTER TABLE context.{table} DISABLE TRIGGER append_only")
        await connection.execute(statement)
        for table in ("transitions", "checkpoints"):
            await connection.execute(f"ALTER TABLE context.{table} ENABLE TRIGGER append_only")


async def test_what_was_recorded_holds(bench: Bench) -> None:
    await talked(bench)
    request = pb.VerifyContextRequest(thread=THREAD, requests=True)
    response = await bench.service.VerifyContext(request, None)
    assert list(response.findings) == []
    assert response.transitions > 0
    assert response.checkpoints >= 2
    assert response.snapshots == len(await bench.listed())
    losses = await Records(bench.db, bench.ring).newest(KEY)
    assert (response.transition_head.seq, response.transition_head.digest) == (
        losses.count,
        losses.digest,
    )


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("DELETE FROM context.transitions WHERE hw = 1", "transition 2 is out of order"),
        (
            "UPDATE context.transitions SET sealed = substring(sealed for 40) WHERE hw = 1",
            "transition 1 cannot be read",
        ),
        (
            "UPDATE context.transitions SET chain_digest = '\\x00' WHERE hw = 1",
            "transition 1 does not match the chain",
        ),
        ("DELETE FROM context.checkpoints WHERE ordinal = 1", "checkpoint 2 is out of order"),
        ("UPDATE context.checkpoints SET sealed = '\\x00'", "checkpoint 1 cannot be read"),
    ],
)
async def test_a_changed_record_is_named(bench: Bench, statement: str, says: str) -> None:
    await talked(bench)
    await change(bench, statement)
    assert any(message.startswith(says) for message in await found(bench, requests=False))


async def test_a_summary_of_another_history_is_found(bench: Bench) -> None:
    """Sealed with the right key, by somebody who has it: it covers what was never there."""
    await talked(bench)
    records = Records(bench.db, bench.ring)
    losses = await records.newest(KEY)
    assert losses.checkpoint is not None
    forged = msgspec.structs.replace(
        losses.checkpoint,
        effective_digest=bytes(32),
        previous_id=losses.last_id,
        through_seq=losses.checkpoint.through_seq,
    )
    made = await records.record_checkpoint(KEY, 9, ("turn_9", 0), losses, identified(KEY, forged))
    assert made is not None
    messages = await found(bench, requests=False)
    assert messages == [
        f"checkpoint {made.ordinal} covers another history than the one that is recorded"
    ]


async def test_records_are_never_changed_or_deleted(bench: Bench) -> None:
    await talked(bench)
    for statement in (
        "UPDATE context.transitions SET target_seq = 1",
        "UPDATE context.checkpoints SET sealed = '\\x00'",
        "DELETE FROM context.transitions",
        "DELETE FROM context.checkpoints",
    ):
        with pytest.raises(Exception, match="never changed"):
            async with bench.db.commit("test") as connection:
                await connection.execute(statement)
    await bench.tombstone()
    assert await bench.db.fetchval("SELECT count(*) FROM context.transitions") == 0
