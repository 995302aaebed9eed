"""Random steps against the journal of the turn protocol's model, which is a dozen lines long."""

import random
from collections.abc import Awaitable
from dataclasses import dataclass

import pytest

from foundation.errors import Failure
from foundation.outcomes import MAY_HAVE_RUN_TEXT, NOT_RUN_TEXT
from services.journal.states import State
from tests.services.journal.bench import Bench, new, text, texts

OPERATIONS = ("op_1", "op_2", "op_3")
NONCES = (b"1" * 16, b"2" * 16)


@dataclass
class Model:
    """One operation, in the model's words."""

    state: State = State.ABSENT
    shown: str | None = None
    nonce: bytes | None = None
    raw: str | None = None
    late: str | None = None
    is_clients: bool = False

    def prepare(self) -> None:
        if self.state is State.ABSENT:
            self.state = State.PREPARED

    def start(self, nonce: bytes) -> bool:
        if self.state is State.PREPARED:
            self.state, self.nonce = State.STARTED, nonce
            return True
        closed = self.state in (State.AMBIGUOUS, State.ABANDONED)
        return self.nonce == nonce and not closed

    def complete(self, nonce: bytes, out: str) -> bool:
        if self.nonce != nonce:
            return False
        if self.state is State.STARTED:
            self.state, self.shown, self.raw = State.COMPLETED, out, out
        elif self.state is State.AMBIGUOUS or self.is_clients:
            if self.raw != out and self.late not in (None, out):
                return False
            self.late = self.late if self.raw == out else out
        elif self.raw != out:
            return False
        return True

    def answer(self, out: str) -> None:
        if self.state in (State.ABSENT, State.PREPARED, State.STARTED):
            self.state, self.shown, self.raw = State.COMPLETED, out, out
            self.is_clients = True
        elif self.raw != out and self.late is None:
            self.late = out

    def close(self) -> None:
        if self.state in (State.ABSENT, State.PREPARED):
            self.state, self.shown = State.ABANDONED, NOT_RUN_TEXT
        elif self.state is State.STARTED:
            self.state, self.shown = State.AMBIGUOUS, MAY_HAVE_RUN_TEXT


async def step(bench: Bench, model: Model, id: str, rng: random.Random) -> None:
    nonce, out = rng.choice(NONCES), rng.choice("abc")
    match rng.choice(("prepare", "start", "start", "complete", "complete", "answer", "close")):
        case "prepare":
            model.prepare()
            await bench.prepare(new(id))
        case "start":
            expected = model.start(nonce)
            assert await succeeds(bench.start(id, nonce)) == expected
        case "complete":
            expected = model.complete(nonce, out)
            assert await succeeds(bench.complete(text(out), id, nonce)) == expected
        case "answer":
            model.answer(out)
            await bench.answer(text(out), id)
        case _:
            model.close()
            await bench.close(id)


async def succeeds(attempt: Awaitable[object]) -> bool:
    try:
        await attempt
    except Failure:
        return False
    return True


@pytest.mark.parametrize("seed", range(12))
async def test_random_steps_end_as_in_the_model(bench: Bench, seed: int) -> None:
    rng = random.Random(seed)
    models = {id: Model() for id in OPERATIONS}
    for _ in range(40):
        id = rng.choice(OPERATIONS)
        await step(bench, models[id], id, rng)
        found = await bench.get(id)
        assert (found[0].state if found else State.ABSENT) == models[id].state
        if found:
            assert found[0].has_late_outcome == (models[id].late is not None)
            shown = texts(found[0])[0] if found[0].HasField("projection") else None
            assert shown == models[id].shown
