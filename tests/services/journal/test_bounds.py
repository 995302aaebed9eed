"""P10: a projection is computed within bounds of time and memory, or it says why it is none."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator
from functools import partial

import pytest
from counterfoil.journal.v1 import journal_pb2 as pb
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation.outcomes import PROJECTION_FAILED, PROJECTION_TIMEOUT
from foundation.projections import FailureBody, decode
from services.journal import workers as workers_module
from services.journal.projecting import Projecting
from services.journal.projection import Plan
from services.journal.projector import deny, project
from services.journal.records import Late
from services.journal.redaction import NO_REDACTION, Redactor
from services.journal.rows import ThreadKey
from services.journal.service import Journal
from services.journal.worker import MEMORY_BYTES_MAX
from services.journal.workers import Broke, Workers
from tests.services.journal.bench import RING, THREAD, Bench, new, projecting, text, texts
from tests.services.journal.pictures import POLICY, image, outcome, png
from tests.services.journal.pictures import text as block

KEY = ThreadKey.of(THREAD)
SLOW = Redactor(("(a+)+b", "secret"))
ENDLESS = "a" * 60
"""What takes SLOW ages of the world."""


@pytest.fixture
async def workers() -> AsyncGenerator[Workers]:
    made = Workers(cpu_s=0.3)
    yield made
    made.close()


def code(plan: Plan) -> str:
    decoded = decode(plan.projected.body)
    return decoded.code if isinstance(decoded, FailureBody) else ""


def under(redactor: Redactor, workers: Workers) -> Projecting:
    return projecting(redactor=redactor, workers=workers)


async def test_a_pattern_that_never_ends_keeps_no_outcome_and_no_other_call(
    bench: Bench,
) -> None:
    # With their usual bounds: time enough for the other call, on a busy machine too.
    bench.service = Journal(bench.db, RING, under(SLOW, bench.workers))
    await bench.prepare(new("op_1"), new("op_2", index=1))
    await bench.start("op_1")
    await bench.start("op_2")
    endless = asyncio.create_task(bench.complete(text(ENDLESS), "op_1"))
    quick = await bench.complete(text("a secret"), "op_2")
    assert texts(quick) == ["a [redacted]"]
    assert not endless.done()
    completed = await endless
    assert completed.projection.body == b'{"code":"projection_timeout","kind":"failure","v":1}'
    assert completed.redactor == SLOW.version
    assert texts(completed) == ["The call ran, but preparing its result for display took too long."]
    assert list(await bench.get("op_1")) == [completed]


async def test_receipts_late_outcomes_and_denials_are_bounded_too(workers: Workers) -> None:
    bound = under(SLOW, workers)
    endless = text(ENDLESS)
    raw = endless.SerializeToString()
    received = await bound.received(KEY, {"op_1": raw, "op_2": text("b").SerializeToString()})
    assert code(Plan(received["op_1"])) == PROJECTION_TIMEOUT
    assert b'"b"' in received["op_2"].body
    (shown,) = await bound.late(KEY, [Late("op_1", "search", raw)])
    assert b"projection_timeout" in shown.projection.body
    denied = (await bound.plan(KEY, pb.Outcome(denial=pb.Denial(reason=ENDLESS)))).plan
    assert denied.projected.body == b'{"kind":"denied","v":1}'


async def test_many_endless_outcomes_take_no_longer_than_one_may() -> None:
    workers = Workers(cpu_s=30, wall_s=1)
    began = time.monotonic()
    outcomes = {f"op_{n}": text(ENDLESS) for n in range(10)}
    projected = await under(SLOW, workers).projected(KEY, outcomes)
    assert {code(Plan(one)) for one in projected.values()} == {PROJECTION_TIMEOUT}
    assert time.monotonic() - began < 10
    assert workers.pids == []
    workers.close()


async def test_memory_is_bounded_and_no_image_is_unpacked(workers: Workers) -> None:
    with pytest.raises(Broke):
        await workers.run(partial(bytearray, 2 * MEMORY_BYTES_MAX))
    assert await workers.run(partial(len, "a")) == 1
    bomb = outcome(image(png(100_000, 100_000, 400_000)))
    shown = (await under(NO_REDACTION, workers).plan(KEY, pb.Outcome(content=bomb))).plan
    assert b"wider or higher than 2000 pixels" in shown.projected.body


async def test_a_process_that_was_killed_is_replaced_and_its_question_asked_again(
    workers: Workers,
) -> None:
    assert await workers.run(partial(len, "abc")) == 3
    (idle,) = workers.pids
    os.kill(idle, signal.SIGKILL)
    assert await workers.run(partial(len, "abcd")) == 4
    (busy,) = workers.pids
    assert busy != idle
    asked = asyncio.create_task(workers.run(partial(time.sleep, 0.2)))
    await asyncio.sleep(0)  # it is asked now
    os.kill(busy, signal.SIGKILL)
    assert await asked is None
    assert workers.pids != [busy]


async def test_a_process_that_always_dies_is_a_failure_with_a_code(workers: Workers) -> None:
    with pytest.raises(Broke):
        await workers.run(partial(os._exit, 1))
    with pytest.raises(Broke):
        await workers.run(partial(int, "no number"))
    assert await workers.run(partial(int, "1")) == 1


async def test_an_outcome_is_kept_where_no_process_can_be_started(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_module.sys, "executable", "/nowhere/python")
    plan = (await under(SLOW, workers).plan(KEY, text("x"))).plan
    assert code(plan) == PROJECTION_FAILED


async def test_a_cancelled_caller_leaves_no_process_behind(workers: Workers) -> None:
    asked = asyncio.create_task(workers.run(partial(time.sleep, 60)))
    await asyncio.sleep(0)
    (pid,) = workers.pids
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    workers.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_short_text_without_patterns_needs_no_process(workers: Workers) -> None:
    bound = under(NO_REDACTION, workers)
    denial = pb.Outcome(denial=pb.Denial(reason="no"))
    await bound.projected(KEY, {"op_1": text("x" * 200_000), "op_2": denial})
    assert workers.pids == []
    await bound.plan(KEY, text("x" * 300_000))
    assert len(workers.pids) == 1


def test_a_process_ends_with_the_one_that_asks_it() -> None:
    """Killed with -9, nobody is left to end it: the end of its input does."""
    program = (
        "import asyncio, os, signal\n"
        "from functools import partial\n"
        "from services.journal.workers import Workers\n"
        "async def main():\n"
        "    workers = Workers()\n"
        "    print(await workers.run(partial(os.getpid)), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    # Whoever inherits the standard error holds it open: it ends when the process has.
    asker = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    printed, errors = asker.communicate(timeout=60)
    assert (asker.returncode, errors) == (-signal.SIGKILL, b"")
    assert int(printed) > 0


CONTENT = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
BLOCKS = st.lists(
    st.one_of(st.text(max_size=300).map(block), st.just(image(png())), CONTENT), max_size=5
)


Ask = Callable[[Callable[[], Plan]], Plan]


@pytest.fixture(scope="module")
def asked() -> Generator[Ask]:
    with asyncio.Runner() as runner:
        workers = runner.run(_made())
        yield lambda work: runner.run(workers.run(work))
        workers.close()


async def _made() -> Workers:
    return Workers()


@settings(max_examples=60, deadline=None)  # the first one starts the process
@given(st.one_of(BLOCKS.map(json.dumps).map(str.encode), st.binary(max_size=60)), st.booleans())
def test_a_process_makes_the_same_bytes(asked: Ask, content: bytes, is_error: bool) -> None:
    for policy in (POLICY, POLICY._replace(redactor=Redactor(("a+", r"\d{2}")))):
        work = partial(project, content, is_error=is_error, policy=policy)
        assert asked(work) == work()
    denied: Callable[[], Plan] = partial(deny, content.decode(errors="replace"), policy)
    assert asked(denied) == denied()
