"""Previews are sent in order and together, and never hold up an answer."""

import asyncio
from typing import Any, cast

from counterfoil.ledger.v1 import turn_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1 import reference_pb2

from foundation.errors import Failure
from services.runner.live import Live


class Turns:
    """Notes the texts of each batch, and answers when it may."""

    def __init__(self) -> None:
        self.sent: list[list[str]] = []
        self.may_answer = asyncio.Event()
        self.failure: Failure | None = None

    async def PublishPreviews(
        self, request: turn_pb2.PublishPreviewsRequest, **_: float
    ) -> turn_pb2.PublishPreviewsResponse:
        self.sent.append([preview.text for preview in request.previews])
        await self.may_answer.wait()
        if self.failure is not None:
            raise self.failure
        return turn_pb2.PublishPreviewsResponse()


def live(turns: Turns) -> Live:
    return Live(cast(Any, turns), reference_pb2.Fence(epoch=1), "sevt_span")


def preview(text: str) -> turn_pb2.Preview:
    return turn_pb2.Preview(event_id="sevt_1", type="agent.message", text=text)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_an_answer_that_is_whole_at_once_is_not_previewed() -> None:
    turns = Turns()
    async with live(turns) as sender:
        sender.add([preview("a")])
        sender.add([preview("b")])
    await settle()
    assert turns.sent == []


async def test_what_comes_while_a_batch_is_on_its_way_goes_with_the_next() -> None:
    turns = Turns()
    async with live(turns) as sender:
        sender.add([preview("a"), preview("b")])
        await settle()
        sender.add([preview("c")])
        sender.add([])
        sender.add([preview("d")])
        await settle()
        assert turns.sent == [["a", "b"]]
        turns.may_answer.set()
        await settle()
        assert turns.sent == [["a", "b"], ["c", "d"]]
        sender.add([preview("e")])
        await settle()
        assert turns.sent[2:] == [["e"]]


async def test_a_lost_batch_does_not_keep_back_the_rest() -> None:
    turns = Turns()
    turns.may_answer.set()
    turns.failure = Failure(reasons.ERROR_REASON_UNAVAILABLE, "away")
    async with live(turns) as sender:
        for text in "ab":
            sender.add([preview(text)])
            await settle()
    assert turns.sent == [["a"], ["b"]]


async def test_the_end_of_the_answer_does_not_wait_for_a_batch() -> None:
    turns = Turns()
    async with asyncio.timeout(5):
        async with live(turns) as sender:
            sender.add([preview("a")])
            await settle()
            sender.add([preview("b")])
    await settle()
    assert turns.sent == [["a"]]
