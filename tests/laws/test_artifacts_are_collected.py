"""Properties P23 and P24 of artifacts: what is referred to stays, what is not goes, whatever fails.

Sessions stage, commit, fork, redact and are deleted; the collector is cut off at any of its steps,
and races a writer and itself; time is moved in the database. What is referred to is kept apart, by
session, and knows nothing of the collector's own look. PostgreSQL, the object store, the files
service and the collector are the real ones.
"""

import asyncio
import hashlib
import itertools
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from counterfoil.files.v1 import artifacts_pb2 as pb
from counterfoil.journal.v1 import journal_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foundation import failpoints
from foundation.artifacts import artifact_id
from foundation.errors import Failure
from foundation.storage import Database
from services.files import store, sweep_store
from services.runner import collecting
from services.runner.collecting import GRACE_MS, Collector, plan
from tests.services.files.bench import Bench
from tests.support.objects import SessionObjects
from tests.support.postgres import SessionPostgres

SESSIONS = ("sesn_a", "sesn_b", "sesn_c")
BODIES = (b"one", b"two", b"three")
CUTS = tuple(
    f"{name}.{side}"
    for name in ("condemn", "sweep", "remove", "forget", "stage", "put", "store", "copy")
    for side in ("before", "after")
)
_HOUR = 3_600_000

Step = tuple[Any, ...]

_session = st.sampled_from(SESSIONS)
_body = st.sampled_from(BODIES)
_cut = st.none() | st.sampled_from(CUTS)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("stage"), _session, _body, _cut),
        st.tuples(st.just("commit"), _session, _body),
        st.tuples(st.just("fork"), _session, _session, _cut),
        st.tuples(st.just("redact"), _session, _body),
        st.tuples(st.just("tick"), st.sampled_from((1, 20, 30))),
        st.tuples(st.just("collect"), _cut),
        st.tuples(st.just("race"), _session, _body, st.booleans()),
        st.tuples(st.just("inventory"), _cut),
        st.tuples(st.just("delete"), _session, _cut),
    ),
    min_size=1,
    max_size=40,
)


class Cut(Exception):
    """A process died at a failpoint."""


@dataclass
class World:
    """One workspace: the system under test, and what its sessions refer to."""

    bench: Bench
    workspace: str
    referred: dict[str, set[bytes]] = field(
        default_factory=lambda: {session: set[bytes]() for session in SESSIONS}
    )
    staged: dict[tuple[str, bytes], int] = field(default_factory=dict[tuple[str, bytes], int])
    """When each was staged last, in milliseconds of the world's clock."""
    deleted: set[str] = field(default_factory=set[str])
    now: int = 0
    racing: Callable[[], Awaitable[None]] | None = None

    async def play(self, step: Step) -> None:
        name, *arguments = step
        await getattr(self, name)(*arguments)
        await self.check()

    async def stage(self, session: str, body: bytes, cut: str | None = None) -> None:
        if session in self.deleted:
            return
        if await self.survives(lambda: self.bench.stage(body, session, self.workspace), cut):
            self.staged[session, body] = self.now

    async def commit(self, session: str, body: bytes) -> None:
        """An outcome that refers to what was staged for it. Somebody who waited for long, because
        he died meanwhile, stages again before he commits."""
        at = self.staged.get((session, body))
        if session not in self.deleted and at is not None and self.now - at < GRACE_MS:
            self.referred[session].add(body)

    async def fork(self, source: str, target: str, cut: str | None = None) -> None:
        bodies = sorted(self.referred[source])
        if not bodies or {source, target} & self.deleted:
            return
        ids = [self.id(body) for body in bodies]

        async def copying() -> None:
            await self.bench.copy(*ids, source=source, target=target, workspace=self.workspace)

        if await self.survives(copying, cut):
            self.referred[target] |= set(bodies)

    async def redact(self, session: str, body: bytes) -> None:
        self.referred[session].discard(body)

    async def tick(self, hours: int) -> None:
        self.now += hours * _HOUR
        await self.bench.age(hours * _HOUR)

    async def collect(self, cut: str | None = None) -> None:
        collector = Collector(cast(Any, self), cast(Any, self))

        async def all_sessions() -> None:
            async for owner in collector.sessions():
                await collector.look_at(owner)

        await self.survives(all_sessions, cut)

    async def race(self, session: str, body: bytes, late: bool) -> None:
        """Two collectors, and a writer between their look at references and what they do next, or
        beside them and two inventories."""

        async def write() -> None:
            self.racing = None
            await self.stage(session, body)
            await self.commit(session, body)

        self.racing = write
        if late:
            inventories = (self.inventory(), self.inventory())
            await asyncio.gather(self.collect(), self.collect(), write(), *inventories)
        else:
            await asyncio.gather(self.collect(), self.collect())
        self.racing = None

    async def inventory(self, cut: str | None = None) -> None:
        await self.survives(lambda: self.bench.sweep_bytes(2), cut)

    async def delete(self, session: str, cut: str | None = None) -> None:
        self.deleted.add(session)
        self.referred[session].clear()
        await self.survives(lambda: self.bench.tombstone(session, self.workspace), cut)

    async def survives(self, work: Callable[[], Awaitable[Any]], cut: str | None) -> bool:
        """Whether the work ended before its process died."""

        async def die(name: str) -> None:
            if name == f"files.{cut}":
                raise Cut

        failpoints.install(die if cut else None)
        try:
            await work()
        except Cut:
            return False
        finally:
            failpoints.install(None)
        return True

    async def check(self) -> None:
        """P23: whatever is referred to can be read, and is what it was."""
        for session, bodies in self.referred.items():
            for body in bodies:
                id = self.id(body)
                assert await self.bench.read(id, session, self.workspace) == body

    async def settle(self) -> None:
        """P24: after two quiet grace periods nothing else is left, and no bytes."""
        for session in self.deleted:
            await self.bench.tombstone(session, self.workspace)
        for _ in range(2):
            await self.tick(25)
            await self.collect()
        await self.inventory()
        await self.check()
        for session, bodies in self.referred.items():
            left = await self.bench.states(session, self.workspace)
            expected = {self.id(body) for body in bodies}
            assert {id for id, state in left.items() if state != "deleted"} == expected
        needed = set[bytes]().union(*self.referred.values())
        assert len(await self.bench.keys(f"blobs/{self.workspace}/")) == len(needed)

    def id(self, body: bytes) -> str:
        role = pb.ARTIFACT_ROLE_TOOL_OUTPUT
        return artifact_id(self.workspace, hashlib.sha256(body).digest(), "text/plain", role)

    async def CollectReferences(
        self, request: journal_pb2.CollectReferencesRequest, **_: float
    ) -> journal_pb2.CollectReferencesResponse:
        if request.workspace_id != self.workspace or request.session_id in self.deleted:
            raise Failure(reasons.ERROR_REASON_DELETED, "somebody else's")
        ids = [self.id(body) for body in self.referred[request.session_id]]
        if self.racing is not None:
            await self.racing()
        return journal_pb2.CollectReferencesResponse(artifact_ids=sorted(ids))

    def __getattr__(self, name: str) -> Any:
        """The files service, as its stub calls it."""
        method = getattr(self.bench.service, name)

        async def call(request: Any, **_: float) -> Any:
            return await method(request, None)

        return call


@dataclass
class Theatre:
    """A loop, a database and a bucket for all examples; each has a workspace of its own."""

    runner: asyncio.Runner
    bench: Bench
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def play(self, steps: list[Step]) -> None:
        self.runner.run(self._play(steps))

    async def _play(self, steps: list[Step]) -> None:
        world = World(self.bench, f"wrkspc_{next(self.numbers)}")
        try:
            for step in steps:
                await world.play(step)
            await world.settle()
        finally:
            for session in SESSIONS:
                await self.bench.tombstone(session, world.workspace)


@pytest.fixture(scope="module")
def theatre(postgres: SessionPostgres, objects: SessionObjects) -> Generator[Theatre]:
    with asyncio.Runner() as runner:
        databases = postgres.database("files")
        dsn = runner.run(databases.__aenter__())
        db = runner.run(Database.open(dsn, service="files"))
        store = objects.store()
        runner.run(store.put("made", b"the bucket is there"))
        yield Theatre(runner, Bench.of(dsn, db, store))
        runner.run(db.close())
        runner.run(databases.__aexit__(None, None, None))


_COMMON = settings(
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@settings(_COMMON, max_examples=25, derandomize=True)
@given(STEPS)
def test_what_is_referred_to_stays_and_the_rest_goes(theatre: Theatre, steps: list[Step]) -> None:
    theatre.play(steps)


@pytest.mark.full
@pytest.mark.timeout(1800)
@settings(_COMMON, max_examples=300)
@given(STEPS)
def test_it_does_so_in_many_worlds(theatre: Theatre, steps: list[Step]) -> None:
    theatre.play(steps)


LATER, COLLECTED = ("tick", 30), ("collect", None)
STAGED, COMMITTED = ("stage", "sesn_a", b"one", None), ("commit", "sesn_a", b"one")
OTHERS = ("stage", "sesn_b", b"one", None)

Patch = tuple[object, str, object]


def _sql(module: Any, name: str, *changed: tuple[str, str]) -> Patch:
    text = getattr(module, name)
    for before, after in changed:
        assert before in text
        text = text.replace(before, after)
    return module, name, text


MUTANTS: dict[str, tuple[list[Patch], list[Step]]] = {
    "references do not count": (
        [(collecting, "plan", lambda owned, _: plan(owned, ()))],
        [STAGED, COMMITTED, LATER, COLLECTED, LATER, COLLECTED],
    ),
    "there is no grace period": (
        [
            _sql(sweep_store, "LIST_DUE", ("now() - $1", "now() + $1")),
            _sql(sweep_store, "CONDEMN", ("now() - $4", "now() + $4")),
            _sql(sweep_store, "DELETE", ("now() - $4", "now() + $4")),
        ],
        [STAGED, COLLECTED, COLLECTED, COMMITTED],
    ),
    "what is staged again stays condemned": (
        [
            _sql(
                store,
                "STAGE",
                ("state = excluded.state", "state = artifacts.state"),
                ("condemned_at = NULL", "condemned_at = artifacts.condemned_at"),
            )
        ],
        [STAGED, LATER, COLLECTED, LATER, STAGED, COLLECTED, COMMITTED],
    ),
    "bytes go that another session needs": (
        [_sql(sweep_store, "GIVE_UP_BLOBS", ("a.state < 4", "a.state < 0"))],
        [STAGED, COMMITTED, OTHERS, LATER, COLLECTED, LATER, COLLECTED],
    ),
    "the inventory knows no stored blob": (
        [_sql(sweep_store, "KNOWN_BLOBS", ("state < 3", "state < 2"))],
        [STAGED, COMMITTED, ("inventory", None)],
    ),
    "bytes stay": (
        [_sql(sweep_store, "GIVE_UP_BLOBS", ("b.state < 3", "b.state < 0"))],
        [STAGED],
    ),
}
"""Rules that are taken away, and what shows it."""


@pytest.mark.parametrize("name", MUTANTS)
def test_without_one_of_its_rules_it_is_found_out(
    theatre: Theatre, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    patches, steps = MUTANTS[name]
    theatre.play(steps)
    for patch in patches:
        monkeypatch.setattr(*patch)
    with pytest.raises((AssertionError, Failure)):
        theatre.play(steps)
