"""What a history is taken to weigh is what is shown of it: no result of a repeated id, and an image
that finds no room as the line that stands for it."""

import json
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from counterfoil.journal.v1.journal_pb2 import Projection
from hypothesis import given
from hypothesis import strategies as st

from foundation.projections import Artifact, part_value, text_part, write_content
from services.context.losses import NO_LOSSES
from services.context.materializer import IMAGE_BYTES_MAX, item_tokens, materialize, tokens_of
from services.context.planning import plan_pruning
from services.context.reducer import reduce
from tests.services.context.conftest import Bench
from tests.services.context.histories import History, projection, projection_of, text, use
from tests.services.context.test_making_it_fit import small

IMAGE = 1_600
DATA = b"i" * 30_000
"""Bytes of every image: what counts is what its reference says of its size."""


def image(number: int, size: int) -> Artifact:
    return Artifact(f"art_{number}", "image/png", size, "00" * 32, 9, 9)


def result(said: str, *images: Artifact) -> Projection:
    parts = [text_part(said), *map(part_value, images)]
    return projection_of(write_content(parts, is_error=False))


def real_tokens(messages: Iterable[dict[str, Any]]) -> int:
    """A third of the bytes, and what images cost instead of their data."""

    def data(block: dict[str, Any]) -> list[int]:
        if block["type"] == "image":
            return [len(block["source"]["data"])]
        return [n for one in block.get("content", []) for n in data(one)]

    written, images = 0, 0
    for message in messages:
        found = [n for block in message["content"] for n in data(block)]
        body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
        written, images = written + len(body) + 1 - sum(found), images + len(found)
    return -(-written // 3) + IMAGE * images


@given(st.data())
def test_an_estimate_is_of_what_is_shown(data: st.DataObject) -> None:
    history = History().ask(text("begin"))
    sizes = st.lists(st.sampled_from([1_000, 2 * 2**20, 5 * 2**20]), max_size=3)
    images = 0
    for _ in range(data.draw(st.integers(1, 5))):
        calls = data.draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=4))
        given = list[Projection]()
        for _ in calls:
            chosen = data.draw(sizes)
            said = data.draw(st.text("ab\n ", max_size=50))
            given.append(result(said, *(image(images + n, size) for n, size in enumerate(chosen))))
            images += len(chosen)
        history.answer(text("I call."), *(use(id, "{}") for id in calls)).results(*given)
    items = reduce(history.entries, history.projections).items
    shown = materialize(items, {f"art_{n}": DATA for n in range(images)}).messages
    assert tokens_of(items) == real_tokens(json.loads(one.body) for _, one in shown)


def test_what_is_not_shown_weighs_what_stands_for_it() -> None:
    once = History().ask().answer(use("a")).results(projection("short"))
    twice = (
        History()
        .ask()
        .answer(use("a"), use("a"))
        .results(projection("short"), projection("x" * 90_000))
    )
    (_, _, one), (_, _, two) = (
        reduce(history.entries, history.projections).items for history in (once, twice)
    )
    assert item_tokens(one) == item_tokens(two)
    fits = [image(number, IMAGE_BYTES_MAX // 4) for number in range(4)]
    last = [image(5, 1), image(6, 1)]
    budget = History().ask().answer(use("a"), use("b"))
    budget.results(result("", *fits), result("", *last))
    items = reduce(budget.entries, budget.projections).items
    assert 4 * IMAGE < tokens_of(items) < 5 * IMAGE


def test_what_is_not_shown_is_not_archived_either() -> None:
    history = History().ask().answer(use("a"), use("a"))
    history.results(projection("short"), projection("x" * 90_000)).answer(text("read"))
    items = reduce(history.entries, history.projections).items
    assert plan_pruning(("w", "s", "t"), items, NO_LOSSES, 10_000, 5_000) == []


@pytest.mark.parametrize("seed", range(4))
async def test_a_summary_makes_the_real_request_a_fifth_smaller(bench: Bench, seed: int) -> None:
    """However much of the history is not shown at all."""
    random = Random(seed)
    images = 0
    for number in range(random.randint(6, 9)):
        await bench.ask(text(f"goal {number}"))
        for _ in range(random.randint(1, 3)):
            chosen = [image(images + n, 5 * 2**20) for n in range(random.choice([0, 0, 2]))]
            images += len(chosen)
            bench.artifacts.bodies.update({one.id: DATA for one in chosen})
            await bench.answer(text("I call."), use("a"), use("a"), uses=(1, 2))
            shown, hidden = "x" * random.randint(500, 3_000), "y" * random.randint(0, 9_000)
            await bench.results(_1=result(shown, *chosen), _2=result(hidden, *chosen))
        await bench.answer(text(f"decided {number}"))
    await bench.ask(text("next?"))
    before = await bench.prepare(pinned=small(window=1_000_000))
    after = await bench.prepare(number=2, pinned=small(window=12_000))
    assert after.snapshot.checkpoint_id not in ("", before.snapshot.checkpoint_id)
    was, now = (real_tokens(json.loads(one.body)["messages"]) for one in (before, after))
    assert now <= 0.8 * was
