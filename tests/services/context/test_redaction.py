"""What was redacted is not shown again by anything; what may hold it is erased in one commit."""

import asyncio
import json
from collections.abc import Awaitable
from typing import Any

import pytest
from counterfoil.context.v1 import context_pb2 as pb
from counterfoil.context.v1 import snapshots_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.artifacts import path_of
from foundation.errors import Failure
from foundation.projections import REDACTED, Artifact, text_part, write_content
from foundation.storage.testing import assert_sql_prepares
from services.context import redaction_store, store
from services.context.cache import WarmCache
from services.context.checkpoints import Checkpoint
from services.context.records import Records, open_transition
from services.context.transitions import (
    CHAIN_MAX,
    INPUT_PART,
    WITHHELD,
    Current,
    Folded,
    RefusedTransition,
    Target,
    check,
    fold,
    omission,
    transition,
    unreadable,
)
from tests.services.context.conftest import THREAD, Bench
from tests.services.context.histories import NOTE, projection, projection_of, text, use
from tests.services.context.test_making_it_fit import ARCHIVE, round_of, small, turn_of

KEY = (THREAD.workspace_id, THREAD.session_id, THREAD.thread_id)
SECRET = "<<hunter2>>"


async def test_every_statement_prepares(bench: Bench) -> None:
    assert await assert_sql_prepares(redaction_store, bench.dsn) == 11


async def redact(bench: Bench, service: Any = None, **target: Any) -> pb.RedactResponse:
    request = pb.RedactRequest(thread=THREAD, reader="ops", reason="a leaked key", **target)
    return await (service or bench.service).Redact(request, None)


async def refused(call: Awaitable[Any]) -> int:
    with pytest.raises(Failure) as caught:
        await call
    return caught.value.reason


async def opened(bench: Bench) -> bytes:
    """Everything that the context keeps of the thread, sealed bodies opened."""
    rows = await bench.db.fetch("SELECT * FROM context.transitions ORDER BY hw")
    found = [open_transition(bench.ring, KEY, row).replacement for row in rows]
    for row in await bench.db.fetch("SELECT * FROM context.checkpoints WHERE sealed IS NOT NULL"):
        bound = ("context.checkpoints", "sealed", *KEY, row["ordinal"], row["id"])
        found.append(bench.ring.open(row["sealed"], *bound))
    for row in await bench.db.fetch("SELECT * FROM context.prefixes"):
        bound = (row["seq"], row["digest"].hex(), row["version"], row["losses"])
        where = ("context.prefixes", "messages_sealed", *KEY, *bound)
        found.append(bench.ring.open(row["messages_sealed"], *where))
    return b"\n".join(found)


async def test_a_redacted_result_is_never_sent_again_by_any_process(bench: Bench) -> None:
    stale = bench.another()
    await turn_of(bench, "a", SECRET, "harmless")
    await bench.ask(text("go on"))
    before = await bench.prepare()
    assert SECRET in before.body.decode()
    await stale.PrepareRequest(bench.request(number=2), None)  # its memory holds it now
    response = await redact(bench, operation_id="op_2_1")
    assert [(t.seq, t.operation_id, t.created) for t in response.targets] == [(3, "op_2_1", True)]
    bench.journal.projections["op_2_1"].Clear()  # the journal erases it later
    for number, service in enumerate((bench.service, stale, bench.another()), start=3):
        made = (await service.PrepareRequest(bench.request(number=number), None)).prepared
        assert SECRET not in made.body.decode()
        assert "Its result was redacted" in made.body.decode()
        assert "harmless" in made.body.decode()
        assert await bench.rebuild(made.snapshot.id) == made.body
    assert await refused(bench.rebuild(before.snapshot.id)) == reasons.ERROR_REASON_WRONG_STATE


async def test_a_redacted_input_is_withheld_whole_and_needs_its_content_no_more(
    bench: Bench,
) -> None:
    await bench.ask(text(f"the key is {SECRET}"), text("use it"))
    await bench.answer(text("used"))
    await bench.ask(text("go on"))
    await bench.prepare()
    await redact(bench, entry_seq=1)
    made = await bench.prepare(number=2)
    first = json.loads(made.body)["messages"][0]
    assert [block["text"] for block in first["content"]] == ["(this message was redacted)"]
    assert SECRET not in made.body.decode()


async def test_summaries_that_cover_it_are_revoked_and_made_again_without_it(bench: Bench) -> None:
    pinned = small()
    for number in range(7):
        await turn_of(bench, f"t{number}", f"<r{number}>" + SECRET * 600)
    await bench.ask(text("and now?"))
    first = await bench.prepare(pinned=pinned)
    assert first.snapshot.checkpoint_id
    assert SECRET in first.body.decode()
    revoked = first.snapshot.checkpoint_id
    response = await redact(bench, operation_id="op_2_1")
    assert response.revoked_checkpoints == 1
    bench.journal.projections["op_2_1"].Clear()
    kept = await bench.db.fetch("SELECT sealed FROM context.checkpoints")
    assert [row["sealed"] for row in kept] == [None]
    second = await bench.another().PrepareRequest(bench.request(number=2, pinned=pinned), None)
    made = second.prepared
    assert made.snapshot.checkpoint_id not in ("", revoked)
    losses = await Records(bench.db, bench.ring).newest(KEY)
    assert isinstance(losses.checkpoint, Checkpoint)
    assert losses.checkpoint.cause == "redaction_repair"
    assert losses.checkpoint.previous_id == revoked
    assert await bench.rebuild(made.snapshot.id) == made.body
    assert await refused(bench.rebuild(first.snapshot.id)) == reasons.ERROR_REASON_WRONG_STATE
    for number in range(1, 7):  # the same is in the results of the other turns
        await redact(bench, operation_id=f"op_{2 + 4 * number}_1")
    third = await bench.prepare(number=3, pinned=pinned)
    assert SECRET not in third.body.decode()
    assert SECRET.encode() not in await opened(bench)


async def test_what_a_revoked_summary_covered_is_summarized_again_even_if_it_fits(
    bench: Bench,
) -> None:
    for number in range(7):
        await turn_of(bench, f"t{number}", f"<r{number}>" + "long " * 1_200)
    await bench.ask(text("and now?"))
    first = await bench.prepare(pinned=small())
    records = Records(bench.db, bench.ring)
    revoked = (await records.newest(KEY)).checkpoint
    assert revoked is not None
    await redact(bench, operation_id="op_2_1")
    roomy = small(window=500_000)  # everything would fit
    bodies: list[bytes] = []
    for number, service in enumerate((bench.service, bench.another()), start=2):
        request = bench.request(number=number, pinned=roomy)
        bodies.append((await service.PrepareRequest(request, None)).prepared.body)
    assert bodies[0] == bodies[1]
    assert len(bodies[0]) < len(first.body) + 2_000
    losses = await records.newest(KEY)
    made = losses.checkpoint
    assert made is not None
    assert (made.cause, made.previous_id) == ("redaction_repair", revoked.id)
    assert (made.through_seq, losses.ordinal) == (revoked.through_seq, 2)


async def test_what_replaced_it_before_is_erased_too(bench: Bench) -> None:
    pinned = small(archive=True)
    for number in range(3):
        await turn_of(bench, f"t{number}", f"<r{number}>" + SECRET + "x" * 6_600)
    await bench.ask(text("and now?"))
    await round_of(bench, "z", projection("y" * 6_000))
    archived = await bench.prepare(round=1, pinned=pinned)
    assert archived.snapshot.transition_head.seq > 0
    assert SECRET.encode() in await opened(bench)
    for number in range(3):
        await redact(bench, operation_id=f"op_{2 + 4 * number}_1")
    assert SECRET.encode() not in await opened(bench)
    made = await bench.prepare(round=1, number=2, pinned=pinned)
    assert SECRET not in made.body.decode()


async def test_results_that_read_it_again_and_the_late_note_go_with_it(bench: Bench) -> None:
    pinned = small(archive=True)
    await turn_of(bench, "a", SECRET)
    call = b'{"type":"tool_use","id":"toolu_r","name":"read_archive","input":{"ref":"op_2_1"}}'
    await bench.ask(text("read it again"))
    await bench.answer(call, use("toolu_other"), uses=(0, 1))
    await bench.results(_0=projection(SECRET), _1=projection("harmless"))
    await bench.answer(text("done"))
    await bench.append(NOTE, blocks=[text("another note")])
    await bench.ask(text("go on"))
    response = await redact(bench, operation_id="op_2_1")
    assert [t.operation_id for t in response.targets] == ["op_2_1", "op_6_0"]
    made = await bench.prepare(pinned=pinned)
    assert SECRET not in made.body.decode()
    assert "harmless" in made.body.decode()
    assert "another note" in made.body.decode()
    assert pinned.tools[-1] == ARCHIVE


async def test_results_that_read_its_whole_text_go_with_it(bench: Bench) -> None:
    """A text that was too long is read by the file that its result names, not by the call."""
    id = "art_" + "0" * 26
    named = {"artifact_id": id, "kind": "artifact", "media_type": "text/plain"}
    parts: list[object] = [text_part("beginning"), {**named, "sha256": "00" * 32, "size": 9}]
    call = b'{"type":"tool_use","id":"toolu_r","name":"read_archive","input":{"ref":"%b"}}'
    await bench.ask(text("read"))
    await round_of(bench, "a", projection_of(write_content(parts, is_error=False)))
    for ref in (id, path_of(Artifact(id, "text/plain", 9, "00"))):
        await bench.answer(call % ref.encode(), uses=(0,))
        await bench.results(_0=projection(SECRET))
    await bench.answer(text("done"))
    response = await redact(bench, operation_id="op_2_1")
    assert [t.operation_id for t in response.targets] == ["op_2_1", "op_4_0", "op_6_0"]


async def test_a_redaction_is_recorded_once_however_often_it_is_asked_for(bench: Bench) -> None:
    await turn_of(bench, "a", SECRET)
    calls = [redact(bench, bench.another(), operation_id="op_2_1") for _ in range(4)]
    responses = await asyncio.gather(*calls)
    assert sum(one.targets[0].created for one in responses) == 1
    assert len({one.targets[0].transition_id for one in responses}) == 1
    assert await bench.db.fetchval("SELECT count(*) FROM context.transitions") == 1
    rows = await bench.db.fetch("SELECT reader, purpose FROM context.access")
    assert [tuple(row.values()) for row in rows] == [("ops", "a leaked key")] * 4


async def test_only_what_history_holds_is_redacted(bench: Bench) -> None:
    await turn_of(bench, "a", "harmless")
    cases = [
        ({"operation_id": "op_none"}, reasons.ERROR_REASON_NOT_FOUND),
        ({"entry_seq": 9}, reasons.ERROR_REASON_NOT_FOUND),
        ({"entry_seq": 3}, reasons.ERROR_REASON_INVALID_FIELD),
    ]
    for target, reason in cases:
        assert await refused(redact(bench, **target)) == reason, target
    await bench.tombstone()
    assert await refused(redact(bench, entry_seq=1)) == reasons.ERROR_REASON_DELETED


async def test_a_writer_that_decided_before_it_records_nothing(bench: Bench) -> None:
    await turn_of(bench, "a", SECRET)
    await bench.ask(text("go on"))
    await bench.prepare()
    records = Records(bench.db, bench.ring)
    before = await records.newest(KEY)
    await redact(bench, operation_id="op_2_1")
    old = transition(KEY, Target(3, 1), Folded(b"", b"d", "", 0), REDACTED, "redaction")
    assert await records.record_transitions(KEY, 1, ("turn_1", 0), before, [old]) is None
    await store.keep_prefix(bench.db, KEY, 1, 5, b"d", 1, before.version, b"old messages")
    assert await bench.db.fetchval("SELECT count(*) FROM context.prefixes") == 0
    cold = await bench.another(WarmCache(0)).PrepareRequest(bench.request(number=2), None)
    assert SECRET not in cold.prepared.body.decode()


@pytest.mark.parametrize("part", [0, INPUT_PART])
def test_behind_a_redaction_nothing_counts_and_nothing_is_recorded(part: int) -> None:
    target, base = Target(3, part), Folded(b"", b"d" * 32, "", 0)
    erased = unreadable("tran_1", 3, part, 1)
    redaction = transition(KEY, target, Folded(b"", b"x", "tran_1", 1), REDACTED, "redaction")
    behind = transition(KEY, target, base, omission([0]), "image_omitted_budget")
    for chain in ([redaction], [erased, redaction], [erased, redaction, behind]):
        folded = fold(b"whatever was there", chain)
        assert (folded.replacement, folded.is_redacted) == (REDACTED, True)
        again = transition(KEY, target, folded, REDACTED, "redaction")
        with pytest.raises(RefusedTransition) as caught:
            check(again, Current(folded, b"", 10), 0, 0)
        assert caught.value.reason == "TARGET_REDACTED"
    # An erased row alone proves nothing: it withholds.
    assert fold(b"d" * 32, [erased]).replacement == WITHHELD


def test_what_is_covered_withheld_or_changed_often_can_still_be_redacted() -> None:
    for before in (
        Folded(b"", b"d" * 32, "", 0),
        Folded(WITHHELD, b"d" * 32, "tran_1", 1, is_withheld=True),
        Folded(b"", b"d" * 32, "tran_1", CHAIN_MAX),
    ):
        one = transition(KEY, Target(3, 0), before, REDACTED, "redaction")
        check(one, Current(before, b"", 0), 3, 0)
        other = transition(KEY, Target(3, 0), before, WITHHELD, "redaction")
        with pytest.raises(RefusedTransition, match="leaves nothing"):
            check(other, Current(before, b"", 0), 3, 0)


async def findings(bench: Bench) -> list[tuple[str, bool]]:
    request = pb.VerifyContextRequest(thread=THREAD, requests=True)
    response = await bench.another().VerifyContext(request, None)
    return [(one.message, one.informational) for one in response.findings]


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE context.transitions SET sealed = NULL WHERE hw = 1", "transition 1 cannot be"),
        (
            "INSERT INTO context.revocations SELECT workspace_id, session_id, thread_id, ordinal,"
            " version, 'tran_none' FROM context.checkpoints WHERE ordinal = 2",
            "checkpoint 2 was revoked, but nothing",
        ),
    ],
)
async def test_a_redaction_is_no_damage_and_what_looks_like_one_is(
    bench: Bench, statement: str, says: str
) -> None:
    for number in range(7):
        await turn_of(bench, f"t{number}", SECRET * 600)
    await bench.ask(text("and now?"))
    await bench.prepare(pinned=small())
    await redact(bench, operation_id="op_2_1")
    bench.journal.projections["op_2_1"].Clear()
    await bench.prepare(number=2, pinned=small())
    said = await findings(bench)
    assert said
    assert all(informational for _, informational in said), said
    async with bench.db.commit("test") as c:
        await c.execute("ALTER TABLE context.transitions DISABLE TRIGGER append_only")
        await c.execute(statement)
    named = [message for message, informational in await findings(bench) if not informational]
    assert any(says in message for message in named), named


async def test_a_redacted_request_can_still_be_compared_by_what_was_recorded(bench: Bench) -> None:
    await turn_of(bench, "a", SECRET)
    await bench.ask(text("go on"))
    first = (await bench.prepare()).snapshot.id
    await bench.answer(text("yes"))
    await bench.ask(text("and?"))
    second = (await bench.prepare(round=1)).snapshot.id
    await redact(bench, operation_id="op_2_1")
    third = (await bench.prepare(round=1, number=2)).snapshot.id
    reading = bench.another().reading
    for one, other, cause in (
        (first, second, snapshots_pb2.CONTEXT_CHANGE_APPENDED),
        (second, third, snapshots_pb2.CONTEXT_CHANGE_TRANSITION),
    ):
        found = await reading.difference(THREAD, one, other)
        assert found.cause == cause
        assert (found.blocks, found.shared_bytes) == (0, 0)
        assert not found.HasField("first_difference")
