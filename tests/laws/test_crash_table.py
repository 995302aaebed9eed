"""The crash table: before and after every commit, the process dies there and the session completes.

`TABLE` names every commit with the scenario that hits it and how often it does; a recording run
of each scenario holds it complete. Each hit is killed on its own, because the same commit is
another row of the turn protocol each time.
"""

import asyncio
import signal
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.laws.crash_scenarios import (
    HELD,
    Scenario,
    check,
    continued,
    early,
    ending,
    parked,
    pictured,
    retried,
    takeover,
    unreceived,
)
from tests.support.chat import (
    Chat,
    revived,
    start_anyhow,
)
from tests.support.model import Model
from tests.support.objects import SessionObjects
from tests.support.postgres import SessionPostgres
from tests.support.system import MODES, Mode, system_of
from tests.support.waiting import eventually
from tests.support.zygote import Zygote

TABLE: dict[Scenario, dict[str, int]] = {
    parked: {
        "registry.create_pepper": 1,
        "registry.ensure_workspace": 1,
        "registry.create_agent": 1,
        "registry.create_environment": 1,
        "ledger.void_leases": 1,
        "ledger.heartbeat": 1,
        "ledger.create_session": 1,
        "ledger.submit_events": 5,
        "ledger.claim": 1,
        "ledger.begin_round": 3,
        "ledger.append_round": 3,
        "ledger.append_progress": 2,
        "ledger.commit_turn": 1,
        "ledger.access": 1,
        "transcript.append": 6,
        "transcript.resolve": 1,
        "transcript.note_access": 1,
        "context.create_part_key": 1,
        "context.prepare": 3,
        "context.note_access": 1,
        "journal.start_model_call": 3,
        "journal.complete_model_call": 3,
        "journal.start": 2,
        "journal.complete": 2,
        "journal.complete_client_calls": 1,
        "journal.inspect": 1,
    },
    early: {
        "ledger.submit_events": 5,
        "ledger.commit_turn": 1,
        "ledger.append_progress": 2,
        "journal.complete_client_calls": 1,
    },
    pictured: {
        "journal.receive": 1,
        "journal.complete": 1,
        "files.create_address_key": 1,
        "files.stage": 1,
        "files.put": 1,
        "files.store": 1,
    },
    continued: {
        "ledger.append_round": 3,
        "transcript.append": 5,
    },
    retried: {
        "ledger.claim": 1,
        "ledger.commit_turn": 1,
        "journal.complete_model_call": 1,
    },
    takeover: {
        "ledger.claim": 1,
        "ledger.free_stream": 1,
        "ledger.free_expired": 1,
        "transcript.fence": 1,
        "journal.fence": 1,
        "context.fence": 1,
    },
    ending: {
        "ledger.submit_events": 3,
        "ledger.claim": 1,
        "ledger.commit_turn": 2,
        "ledger.update_session": 1,
        "ledger.archive_session": 1,
        "ledger.delete_session": 1,
        "ledger.offer_erasure": 1,
        "ledger.finish_deletion": 1,
        "transcript.append": 5,
        "transcript.tombstone": 1,
        "journal.close": 1,
        "journal.tombstone": 1,
        "context.tombstone": 1,
        "files.tombstone": 1,
        "registry.archive_agent": 1,
        "registry.delete_environment": 1,
    },
}
"""Scenario → commit → how often the scenario makes it, at least."""

TIMED = {
    "ledger.heartbeat": "every few seconds, and only while a turn is held",
    "ledger.free_expired": "when a lease expired",
    "ledger.offer_erasure": "when a session was deleted",
    "ledger.free_stream": "a second after a stream was lost, in a split system",
    "ledger.void_leases": "when an embedded system starts",
}
"""Commits that time or a start makes: a kill there may not come, or come anywhere in a turn."""

SPLIT_HITS_MAX = 2


@dataclass(frozen=True)
class Case:
    """Die at the n-th hit of a failpoint in a scenario."""

    mode: Mode
    scenario: Scenario
    point: str
    at: int

    @property
    def id(self) -> str:
        return f"{self.mode}-{self.scenario.__name__}-{self.point}@{self.at}"

    @property
    def commit(self) -> str:
        return self.point.rpartition(".")[0]

    @property
    def failpoint(self) -> str:
        return f"{self.point}=kill@{self.at}"

    @property
    def repeats(self) -> int:
        """How many more provider calls the death may cause: an answer that was not stored yet."""
        lost = self.point == "transcript.append.before"
        return lost or self.commit in TIMED


def _told(mode: Mode, scenario: Scenario, point: str) -> Scenario:
    """The scenario as it ends after a death: an outcome that only one process knew is lost."""
    lost = (mode, scenario, point) == ("embedded", pictured, "journal.receive.before")
    return unreceived if lost else scenario


def _cases() -> list[Case]:
    return [
        Case(mode, _told(mode, scenario, f"{name}.{side}"), f"{name}.{side}", at)
        for mode in MODES
        for scenario, commits in TABLE.items()
        for name, hits in commits.items()
        for side in ("before", "after")
        for at in range(1, (hits if mode == "embedded" else min(hits, SPLIT_HITS_MAX)) + 1)
    ]


QUICK = {
    "embedded-parked-ledger.submit_events.after@1",
    "embedded-parked-transcript.append.before@2",
    "embedded-parked-transcript.append.after@2",
    "embedded-parked-journal.complete.before@1",
    "embedded-pictured-journal.receive.after@1",
    "embedded-pictured-files.store.after@1",
    "embedded-parked-ledger.append_progress.before@1",
    "embedded-parked-ledger.commit_turn.after@1",
    "embedded-parked-transcript.append.after@3",
    "embedded-ending-ledger.submit_events.after@2",
    "embedded-continued-ledger.append_round.after@1",
    "embedded-continued-transcript.append.after@4",
    "embedded-retried-ledger.commit_turn.after@1",
    "embedded-takeover-context.fence.after@1",
    "split-parked-ledger.append_round.after@1",
}
"""What every run of the tests shows; the whole table is in the full run."""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.id, marks=() if case.id in QUICK else pytest.mark.full)
        for case in _cases()
    ],
)
async def test_a_death_at_a_commit_changes_nothing(
    case: Case,
    zygote: Zygote,
    model: Model,
    postgres: SessionPostgres,
    objects: SessionObjects,
) -> None:
    own = await objects.environment()
    async with system_of(case.mode, zygote, model, postgres, **own) as system:
        at_start = await start_anyhow(system, case.failpoint)
        async with revived(system, case.failpoint if case.scenario is takeover else "") as dead:
            asked_max = await case.scenario(system)
            if case.commit not in TIMED and not at_start:
                await eventually(lambda: _has_died(case, dead))
        asked = await model.asked()
        assert len(asked) <= asked_max + case.repeats, [one.record for one in asked]


async def _has_died(case: Case, dead: list[str]) -> bool:
    return len(dead) > (case.scenario is takeover)


RELIVED = {
    # The transcript dies with the answer stored; its owner lives on and repeats the write.
    "transcript.append.after@2": "transcript.adopt",
    # The ledger dies; the runner attaches again, with the turn that it holds.
    "ledger.begin_round.after@1": "ledger.keep_claim",
}
"""Where a process of a split system dies first → what its successor commits for that."""


@pytest.mark.full
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("first", RELIVED)
async def test_the_successor_of_a_dead_service_may_die_too(
    first: str, side: str, zygote: Zygote, model: Model, postgres: SessionPostgres
) -> None:
    point, _, at = first.partition("@")
    async with system_of("split", zygote, model, postgres) as system:
        await system.start(f"{point}=kill@{at}")
        async with revived(system, f"{RELIVED[first]}.{side}=kill") as dead:
            assert await parked(system) == 3
        assert len(dead) == 2, dead
        # A runner that was cut off from its turn's owner may have lost the claim, and its answer.
        assert len(await model.asked()) <= 4


@pytest.mark.parametrize(
    "point",
    [
        "transcript.append.after@2",
        pytest.param("ledger.submit_events.after@3", marks=pytest.mark.full),
        pytest.param("journal.complete.after@1", marks=pytest.mark.full),
    ],
)
async def test_everything_dies_at_once(point: str, zygote: Zygote, model: Model) -> None:
    name, _, at = point.partition("@")
    async with system_of("embedded", zygote, model, None) as system:
        pid_file = system.folder / "postgres" / "cluster" / "postmaster.pid"
        system.environment["COUNTERFOIL_FAILPOINTS_PIDS"] = str(pid_file)
        await system.start(f"{name}=killall@{at}")
        async with revived(system) as dead:
            assert await parked(system) == 3
        assert len(dead) == 1
        assert len(await model.asked()) == 3


@pytest.mark.full
async def test_a_runner_that_is_told_to_stop_gives_its_turn_back(
    zygote: Zygote, model: Model, postgres: SessionPostgres
) -> None:
    async with system_of("split", zygote, model, postgres) as system:
        await system.start()
        chat = await Chat.open(system)
        async with revived(system) as dead:
            talking = asyncio.create_task(chat.complete([HELD]))
            await model.held("crash-table")
            system.signal("runner", signal.SIGTERM)
            await model.held("crash-table", 1)
            await model.asked(2)
            await model.release("crash-table")
            await check(chat, await talking, [HELD])
        assert dead == ["runner"]


@pytest.mark.full
@pytest.mark.parametrize("scenario", TABLE, ids=lambda scenario: scenario.__name__)
async def test_the_table_names_every_commit(
    scenario: Scenario, tmp_path: Path, zygote: Zygote, model: Model, postgres: SessionPostgres
) -> None:
    async with system_of("embedded", zygote, model, postgres) as system:
        record = tmp_path / "hits"
        system.environment["COUNTERFOIL_FAILPOINTS_RECORD"] = str(record)
        await system.start()
        async with revived(system):
            await scenario(system)
            # The last commits may come after what a client sees, such as a deletion's end.
            with suppress(TimeoutError):
                await eventually(lambda: _is_complete(scenario, record))
    hits = _hits(record)
    named = {name for commits in TABLE.values() for name in commits}
    assert {hit.rpartition(".")[0] for hit in hits} <= named
    assert not _missing(scenario, hits)


async def _is_complete(scenario: Scenario, record: Path) -> bool:
    return not _missing(scenario, _hits(record))


def _hits(record: Path) -> Counter[str]:
    return Counter(record.read_text().split())


def _missing(scenario: Scenario, hits: Counter[str]) -> list[str]:
    """Commits of the table that were not made as often as it says."""
    return [
        f"{name}.{side}"
        for name, number in TABLE[scenario].items()
        for side in ("before", "after")
        if name not in TIMED and hits[f"{name}.{side}"] < number
    ]
