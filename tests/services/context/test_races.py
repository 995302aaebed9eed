"""Records over PostgreSQL: however many write at once, one wins, whole, and the chain goes on."""

import asyncio
import re
from collections.abc import Sequence

import pytest
from counterfoil.context.v1 import context_pb2 as pb

from foundation import canonical, failpoints, projections
from foundation.storage import Database
from services.context.checkpoints import Checkpoint
from services.context.losses import NO_LOSSES, Losses
from services.context.recipe import thread_key
from services.context.records import Records
from services.context.transitions import Folded, Target, Transition, transition
from tests.services.context.conftest import THREAD, Bench
from tests.services.context.histories import text
from tests.services.context.test_making_it_fit import small, turn_of

KEY = thread_key(THREAD)
TURN = ("turn_1", 0)
WRITERS = 24
BASE = b"b" * 32


class Lost(Exception):
    """The process is gone."""


def body(words: str) -> bytes:
    part = {"kind": "text", "text": words}
    return canonical.encode({"kind": "content", "parts": [part], "v": 1})


def following(losses: Losses, target: Target, words: str) -> Transition:
    """The next transition of a target, as somebody who sees these losses decides it."""
    chain = losses.transitions.get(target)
    before = Folded(b"", BASE, "", 0)
    if chain:
        last = chain[-1]
        before = Folded(last.replacement, last.replacement_digest, last.id, last.ordinal)
    return transition(KEY, target, before, body(words), "active_tool_result_archived")


async def rows(bench: Bench) -> list[tuple[object, ...]]:
    """Everything that is recorded."""
    moved = await bench.db.fetch("SELECT * FROM context.transitions ORDER BY hw")
    covered = await bench.db.fetch("SELECT * FROM context.checkpoints ORDER BY ordinal")
    return [tuple(row.values()) for row in (*moved, *covered)]


async def test_of_racing_writers_one_wins_and_the_chain_has_no_fork(bench: Bench) -> None:
    target = Target(3, 0)
    another = await Database.open(bench.dsn, service="context", pool_size=4)
    try:
        writers = [Records(db, bench.ring) for db in (bench.db, another)] * (WRITERS // 2)
        for ordinal in range(1, 5):
            losses = await writers[0].newest(KEY)
            found = await asyncio.gather(
                *(
                    one.record_transitions(
                        KEY, 1, TURN, losses, [following(losses, target, f"{ordinal} {number}")]
                    )
                    for number, one in enumerate(writers)
                )
            )
            (won,) = [one for one in found if one is not None]
            assert await writers[1].newest(KEY) == won
            assert (won.version, won.count) == (ordinal, ordinal)
    finally:
        await another.close()
    digest, last = BASE, ""
    for ordinal, one in enumerate((await writers[0].newest(KEY)).transitions[target], start=1):
        assert (one.ordinal, one.source_digest, one.predecessor_id) == (ordinal, digest, last)
        digest, last = projections.digest(one.replacement), one.id


async def test_a_writer_with_an_older_claim_or_view_records_nothing(bench: Bench) -> None:
    records = Records(bench.db, bench.ring)
    first = following(NO_LOSSES, Target(3, 0), "first")
    losses = await records.record_transitions(KEY, 2, TURN, NO_LOSSES, [first])
    assert losses is not None
    before = await rows(bench)
    late = following(NO_LOSSES, Target(3, 0), "late")
    assert await records.record_transitions(KEY, 3, TURN, NO_LOSSES, [late]) is None
    right = following(losses, Target(3, 0), "right")
    assert await records.record_transitions(KEY, 1, TURN, losses, [right]) is None
    assert await records.record_transitions(KEY, 2, TURN, NO_LOSSES, [first]) is None
    assert await rows(bench) == before
    assert await records.record_transitions(KEY, 2, TURN, losses, [right]) is not None


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_batch_is_recorded_whole_or_not_at_all(bench: Bench, when: str) -> None:
    async def die(name: str) -> None:
        if name == f"context.record.{when}":
            raise Lost

    records = Records(bench.db, bench.ring)
    batch = [following(NO_LOSSES, Target(3, part), "less") for part in range(3)]
    failpoints.install(die)
    with pytest.raises(Lost):
        await records.record_transitions(KEY, 1, TURN, NO_LOSSES, batch)
    failpoints.install(None)
    found = await records.newest(KEY)
    assert found.count == len(await rows(bench)) == (0 if when == "before" else 3)
    assert found.version == (0 if when == "before" else 1)
    # Whoever goes on repeats its decision: it is recorded once.
    await records.record_transitions(KEY, 1, TURN, NO_LOSSES, batch)
    assert (await records.newest(KEY)).count == len(await rows(bench)) == 3


async def test_a_batch_that_breaks_a_rule_of_the_tables_leaves_nothing(bench: Bench) -> None:
    records = Records(bench.db, bench.ring)
    one = following(NO_LOSSES, Target(3, 0), "less")
    twin = following(NO_LOSSES, Target(3, 0), "another")
    with pytest.raises(Exception, match="transitions_target"):
        await records.record_transitions(KEY, 1, TURN, NO_LOSSES, [one, twin])
    assert await rows(bench) == []
    assert await records.newest(KEY) == NO_LOSSES


async def long_history(bench: Bench) -> pb.PrepareRequestRequest:
    """A request that needs a summary."""
    for number in range(5):
        await turn_of(bench, f"t{number}", f"<r{number}>" + "x" * 6_000)
    await bench.ask(text("next?"))
    return bench.request(round=1, pinned=small())


def checkpoints_of(listed: Sequence[pb.SnapshotSummary]) -> set[str]:
    return {one.checkpoint_id for one in listed}


async def test_of_racing_processes_one_has_the_checkpoint(bench: Bench) -> None:
    asked = await long_history(bench)
    requests: list[pb.PrepareRequestRequest] = []
    for number in range(6):
        request = pb.PrepareRequestRequest()
        request.CopyFrom(asked)
        request.attempt.number = number + 1
        requests.append(request)
    found = await asyncio.gather(
        *(bench.another().PrepareRequest(request, None) for request in requests)
    )
    (id,) = await bench.db.fetch("SELECT id FROM context.checkpoints")
    assert {one.prepared.snapshot.checkpoint_id for one in found} == {id["id"]}
    assert len({one.prepared.body for one in found}) == 1
    assert checkpoints_of(await bench.listed()) == {id["id"]}
    for one in found:
        assert await bench.rebuild(one.prepared.snapshot.id) == one.prepared.body


async def test_a_summary_that_was_decided_before_another_record_is_decided_again(
    bench: Bench,
) -> None:
    asked = await long_history(bench)
    records = Records(bench.db, bench.ring)
    entry = 11  # the newest results that the summary covers
    base = bench.journal.projections[f"op_{entry - 1}_1"]

    async def interfere(name: str) -> None:
        if name == "context.record.before":
            failpoints.install(None)
            before = Folded(b"", base.digest, "", 0)
            words = body("<other> something else by now")
            one = transition(KEY, Target(entry, 1), before, words, "active_tool_result_archived")
            assert await records.record_transitions(KEY, 1, TURN, NO_LOSSES, [one]) is not None

    failpoints.install(interfere)
    made = (await bench.service.PrepareRequest(asked, None)).prepared
    found = await records.newest(KEY)
    assert isinstance(found.checkpoint, Checkpoint)
    assert (found.version, found.checkpoint.transitions) == (2, 1)
    assert made.snapshot.checkpoint_id == found.checkpoint.id
    assert b"<other> something else by now" in found.checkpoint.block
    assert not re.search(rb"<r2>x+", made.body)
    assert await bench.rebuild(made.snapshot.id) == made.body
