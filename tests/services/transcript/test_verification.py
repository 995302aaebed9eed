"""Verification names every changed byte; reads refuse what does not match."""

import pytest
from counterfoil.transcript.v1 import transcript_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons
from sqlalchemy import Table

from foundation.errors import Failure
from services.transcript.schema import entries, heads, id_map
from tests.services.transcript.bench import Bench

_FLIPPED = {
    "TEXT": "overlay({0} placing chr(ascii({0}) # 1) from 1)",
    "BLOB": "set_byte({0}, length({0}) / 2, get_byte({0}, length({0}) / 2) # 1)",
    "BOOLEAN": "NOT {0}",
    "BIGINT": "{0} # 256",
    "INTEGER": "{0} # 256",
    "SMALLINT": "({0}::int # 1)::smallint",
}


def flip(column: str, kind: str) -> str:
    return _FLIPPED[kind].format(column)


def columns(table: Table) -> list[tuple[str, str]]:
    return [(c.name, str(c.type)) for c in table.columns]


async def test_an_honest_transcript_has_no_findings(bench: Bench) -> None:
    head = await bench.fill(4)
    result = await bench.verify()
    assert not result.findings
    assert result.head == head
    assert result.entries == 4
    assert [h.seq for h in result.heads] == [1, 2, 3, 4]
    assert result.heads[-1] == head
    assert result.vouches == [
        pb.LogVouch(seq=1, log_point=pb.LogPoint(position=7, digest=b"d" * 32))
    ]


async def test_verification_pages(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.transcript.verifying._PAGE_ENTRIES", 2)
    await bench.fill(5)
    result = await bench.verify()
    assert (result.entries, len(result.findings)) == (5, 0)


@pytest.mark.parametrize(("column", "kind"), columns(entries))
@pytest.mark.parametrize("seq", [2, 3])
async def test_a_flipped_byte_of_an_entry_is_named(
    bench: Bench, column: str, kind: str, seq: int
) -> None:
    await bench.fill(3)
    await bench.tamper(
        f"UPDATE transcript.entries SET {column} = {flip(column, kind)} WHERE seq = {seq}"
    )
    findings = (await bench.verify()).findings
    assert findings, column
    assert findings[0].seq == seq, column
    assert not findings[0].informational
    named = {f.seq for f in findings if not f.informational}
    assert named <= {seq, seq ^ 256, 4}, column


@pytest.mark.parametrize(("column", "kind"), columns(heads))
async def test_a_flipped_byte_of_the_head_is_named(bench: Bench, column: str, kind: str) -> None:
    await bench.fill(3)
    await bench.tamper(f"UPDATE transcript.heads SET {column} = {flip(column, kind)}")
    assert 0 in {f.seq for f in (await bench.verify()).findings if not f.informational}


@pytest.mark.parametrize(("column", "kind"), columns(id_map))
async def test_a_flipped_byte_of_the_id_map_is_named(bench: Bench, column: str, kind: str) -> None:
    await bench.fill(3)
    await bench.tamper(
        f"UPDATE transcript.id_map SET {column} = {flip(column, kind)} WHERE seq = 2"
    )
    assert [f.seq for f in (await bench.verify()).findings] == [2]


async def test_the_changed_column_is_told_apart(bench: Bench) -> None:
    await bench.fill(4)
    await bench.tamper(
        "UPDATE transcript.entries SET content = NULL WHERE seq = 1",
        f"UPDATE transcript.entries SET commitment = {flip('commitment', 'BLOB')} WHERE seq = 2",
        "UPDATE transcript.entries SET epoch = 9 WHERE seq = 3",
        f"UPDATE transcript.entries SET content = {flip('content', 'BLOB')} WHERE seq = 4",
    )
    found = {f.seq: f.message.split(":")[0] for f in (await bench.verify()).findings}
    assert found == {1: "content", 2: "commitment", 3: "header or digest", 4: "content"}


async def test_a_deleted_tail_is_named(bench: Bench) -> None:
    await bench.fill(4)
    await bench.tamper("DELETE FROM transcript.entries WHERE seq >= 3")
    findings = (await bench.verify()).findings
    assert [(f.seq, f.message) for f in findings] == [(3, "the entry is missing (through 4)")]
    with pytest.raises(Failure) as caught:
        await bench.list()
    assert caught.value.metadata == {"seq": "3"}


async def test_swapped_rows_are_named(bench: Bench) -> None:
    await bench.fill(4)
    await bench.tamper(
        "UPDATE transcript.entries SET seq = seq + 10 WHERE seq IN (2, 3)",
        "UPDATE transcript.entries SET seq = CASE seq WHEN 12 THEN 3 ELSE 2 END WHERE seq > 10",
    )
    assert {f.seq for f in (await bench.verify()).findings} >= {2, 3}


async def test_a_forged_head_is_named(bench: Bench) -> None:
    await bench.fill(4)
    await bench.tamper(
        "DELETE FROM transcript.entries WHERE seq = 4",
        "DELETE FROM transcript.id_map WHERE seq = 4",
        "UPDATE transcript.heads SET seq = 3,"
        " digest = (SELECT digest FROM transcript.entries WHERE seq = 3)",
    )
    findings = (await bench.verify()).findings
    assert [(f.seq, f.message) for f in findings] == [(0, "the head row does not match its seal")]


async def test_a_missing_head_row_is_named(bench: Bench) -> None:
    await bench.fill(2)
    await bench.tamper("DELETE FROM transcript.heads")
    assert [f.seq for f in (await bench.verify()).findings] == [0]


@pytest.mark.parametrize(
    ("statement", "seq"),
    [
        ("UPDATE transcript.entries SET epoch = 9 WHERE seq = 2", 2),
        ("UPDATE transcript.entries SET content = NULL WHERE seq = 2", 2),
        ("UPDATE transcript.entries SET content = 'x' WHERE seq = 2", 2),
        ("UPDATE transcript.entries SET commitment = 'x' WHERE seq = 2", 2),
        ("DELETE FROM transcript.entries WHERE seq = 2", 2),
        ("UPDATE transcript.heads SET epoch_max = 0", 0),
        ("UPDATE transcript.heads SET digest = 'x'", 0),
    ],
)
async def test_a_read_refuses_what_does_not_match(bench: Bench, statement: str, seq: int) -> None:
    await bench.fill(3)
    await bench.tamper(statement)
    with pytest.raises(Failure) as caught:
        await bench.list()
    assert caught.value.reason == reasons.ERROR_REASON_CORRUPT
    assert caught.value.metadata == {"seq": str(seq)}


async def test_verification_leaves_an_access_record_with_the_head(bench: Bench) -> None:
    head = await bench.fill(2)
    await bench.verify()
    row = await bench.db.fetchrow("SELECT action, seq, digest FROM transcript.access")
    assert row is not None
    assert (row["action"], row["seq"], row["digest"]) == ("verify", 2, head.digest)
