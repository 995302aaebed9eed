"""The crash table: before and after every commit, the process dies there and the session completes.

`TABLE` names every commit with the scenario that hits it and how often it does; a recording run
of each scenario holds it complete. Each hit is killed on its own, because the same commit is
another row of the turn protocol each time.
"""

import asyncio
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anthropic
import pytest
from counterfoil.context.v1 import context_pb2
from counterfoil.files.v1 import artifacts_pb2
from counterfoil.journal.v1 import journal_pb2
from counterfoil.ledger.v1 import turn_pb2
from counterfoil.transcript.v1 import transcript_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1 import reference_pb2

from foundation.errors import Failure
from foundation.outcomes import MAY_HAVE_RUN_TEXT
from tests.support.chat import (
    INTERRUPT,
    Chat,
    Event,
    asks,
    confirmation,
    custom_tool,
    patiently,
    result,
    revived,
    start_anyhow,
)
from tests.support.invariants import check_everything
from tests.support.model import Model, begins_with, script, text, use
from tests.support.objects import SessionObjects
from tests.support.platform_tool import PICTURE, PICTURE_TEXT
from tests.support.postgres import SessionPostgres
from tests.support.system import MODES, Mode, System, system_of
from tests.support.waiting import eventually
from tests.support.zygote import Zygote

CALLS = [
    text("Four calls."),
    use("decide", text="a"),
    use("note", text="b"),
    use("transfer", text="c"),
    use("decide", text="d"),
]
GATE = script({"content": CALLS}, {"content": [text("All done.")]})
PICTURED = script(
    {"content": [use("note", text=PICTURE_TEXT)]}, {"content": [text("A white dot.")]}
)
CONTINUED = script(
    {"content": [text("First.")], "stop_reason": "pause_turn"},
    {"content": [text("Second.")], "stop_reason": "max_tokens"},
    "Third.",
)
RETRIED = script({"content": [text("At last.")], "error": {"status": 529}, "times": 1})
HELD = script({"content": [text("Slowly.")], "hold": "crash-table"})


def answered(event: Event) -> Event:
    """What the client says to a call."""
    if event["type"] == "agent.tool_use":
        return confirmation(event["id"])
    return result(event["id"], f"decided {event['input']['text']}")


async def parked(system: System) -> int:
    """Custom calls, a platform call and one that asks, answered when the session waits for them;
    a second message is queued meanwhile. Returns how often the provider may be asked."""
    chat = await Chat.open(system, tools=[custom_tool("decide")])
    history = await chat.complete([GATE, "thanks"], answered, early=False)
    await check(chat, history, [GATE, "thanks"])
    return 3


async def early(system: System) -> int:
    """The same, answered as soon as the calls are seen."""
    chat = await Chat.open(system, tools=[custom_tool("decide")])
    history = await chat.complete([GATE, "thanks"], answered)
    await check(chat, history, [GATE, "thanks"])
    return 3


async def pictured(system: System) -> int:
    """A platform call returns an image, which is kept apart from its result."""
    chat = await Chat.open(system)
    history = await chat.complete([PICTURED])
    await check(chat, history, [PICTURED])
    (shown,) = [event["content"] for event in history if event["type"] == "agent.tool_result"]
    assert "image/png, 1 x 1 pixels" in shown[1]["text"]
    asked = (await system.model.asked())[-1]
    assert PICTURE in asked.body.decode()
    return 2


async def unreceived(system: System) -> int:
    """The same, but the tool's outcome dies with its process: the model is told so."""
    chat = await Chat.open(system)
    history = await chat.complete([PICTURED])
    await check(chat, history, [PICTURED])
    (shown,) = [event["content"] for event in history if event["type"] == "agent.tool_result"]
    assert [part["text"] for part in shown] == [MAY_HAVE_RUN_TEXT]
    return 2


async def continued(system: System) -> int:
    """The provider pauses an answer and cuts the next one off."""
    chat = await Chat.open(system)
    history = await chat.complete([CONTINUED])
    await check(chat, history, [CONTINUED])
    said = [event["content"][0]["text"] for event in history if event["type"] == "agent.message"]
    assert said == ["First.", "Second.", "Third."]
    return 3


async def retried(system: System) -> int:
    """The provider fails once, and the turn waits without a lease until it is claimed again."""
    chat = await Chat.open(system)
    history = await chat.complete([RETRIED])
    await check(chat, history, [RETRIED])
    spans = [e["is_error"] for e in history if e["type"] == "span.model_request_end"]
    said = [e["content"][0]["text"] for e in history if e["type"] == "agent.message"]
    assert (said, spans[0], spans[-1]) == (["At last."], True, False)
    shown = Counter(event["type"] for event in history)
    assert shown["session.error"] == shown["session.status_rescheduled"] <= 1
    return 2


async def takeover(system: System) -> int:
    """The runner dies while the provider answers."""
    chat = await Chat.open(system, tools=[custom_tool("decide")])
    talking = asyncio.create_task(chat.complete([HELD]))
    await system.model.held("crash-table")
    await system.kill_runner()
    await system.model.release("crash-table")
    await check(chat, await talking, [HELD])
    return 2


async def ending(system: System) -> int:
    """A parked turn is interrupted, the next message settles it; then the session gets a title, is
    archived, and all is deleted."""
    chat = await Chat.open(system, tools=[custom_tool("decide")])
    await chat.complete([GATE], early=False, until=asks)
    await patiently(system, lambda: interrupted(chat))
    history = await chat.complete([GATE, "thanks"])
    thread = await check(chat, history, [GATE, "thanks"])
    await patiently(system, lambda: chat.client.beta.sessions.update(chat.id, title="Over"))
    await patiently(system, lambda: chat.client.beta.sessions.archive(chat.id))
    last = [event["type"] for event in (await chat.history())[-3:]]
    assert last == [
        "session.updated",
        "session.thread_status_terminated",
        "session.status_terminated",
    ]
    await patiently(system, lambda: deleted(chat))
    await erased(system, thread)
    return 2


async def interrupted(chat: Chat) -> None:
    """Interrupts, unless that was done before the answer was lost."""
    if not any(event["type"] == "user.interrupt" for event in await chat.history()):
        await chat.send(INTERRUPT)


async def deleted(chat: Chat) -> None:
    """Deletes the session, its environment and its agent, as far as they are there."""
    client = chat.client.beta
    for delete, id in (
        (client.sessions.delete, chat.id),
        (client.environments.delete, chat.environment_id),
        (client.agents.archive, chat.agent_id),
    ):
        with suppress(anthropic.NotFoundError):
            await delete(id)


async def erased(system: System, thread: reference_pb2.ThreadRef) -> None:
    """Waits until every authority refuses the thread."""
    stale = reference_pb2.Fence(thread=thread, epoch=1)
    fences: list[Callable[[], Awaitable[object]]] = [
        lambda: system.transcript.Fence(transcript_pb2.FenceRequest(fence=stale, turn_id="turn_1")),
        lambda: system.journal.Fence(journal_pb2.FenceRequest(fence=stale, turn_id="turn_1")),
        lambda: system.context.Fence(context_pb2.FenceRequest(fence=stale, turn_id="turn_1")),
        lambda: system.artifacts.CopyArtifacts(
            artifacts_pb2.CopyArtifactsRequest(
                workspace_id=thread.workspace_id,
                source_session_id="sesn_none",
                target_session_id=thread.session_id,
                artifact_ids=["art_none"],
            )
        ),
    ]
    for fence in fences:
        await eventually(lambda fence=fence: _refused_as_deleted(fence))


async def _refused_as_deleted(call: Callable[[], Awaitable[object]]) -> bool:
    try:
        await call()
    except Failure as failure:
        return failure.reason == reasons.ERROR_REASON_DELETED
    return False


async def check(chat: Chat, history: list[Event], messages: list[str]) -> reference_pb2.ThreadRef:
    """Each message once, and everything that must hold of any session."""
    said = [event["content"][0]["text"] for event in history if event["type"] == "user.message"]
    assert sorted(said) == sorted(messages)
    asked = await check_everything(chat, history)
    begins_with(asked)
    log = await chat.system.turns.VerifyLog(turn_pb2.VerifyLogRequest(session_id=chat.id))
    return log.thread


Scenario = Callable[[System], Awaitable[int]]

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
