"""What the journal has just answered goes with the next request, once, and within bounds."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from counterfoil.context.v1 import context_pb2
from counterfoil.journal.v1 import journal_pb2
from counterfoil.ledger.v1 import turn_pb2
from counterfoil.transcript.v1 import transcript_pb2

from services.runner.asking import Asker
from services.runner.authorities import Authorities, GiveUp
from services.runner.history import Writer
from services.runner.turn import Turn
from tests.services.runner.owner import THREAD


class Transcript:
    """Takes every entry."""

    async def AppendEntry(
        self, request: transcript_pb2.AppendEntryRequest, **_: float
    ) -> transcript_pb2.AppendEntryResponse:
        return transcript_pb2.AppendEntryResponse()


class Contexts:
    """Notes what it is given, and refuses."""

    def __init__(self) -> None:
        self.given: list[list[str]] = []

    async def PrepareRequest(
        self, request: context_pb2.PrepareRequestRequest, **_: float
    ) -> context_pb2.PrepareRequestResponse:
        self.given.append([one.operation_id for one in request.known_results])
        raise GiveUp("enough")


async def given(bodies: dict[str, bytes]) -> list[list[str]]:
    """The operations that two requests carry behind these results."""
    contexts = Contexts()
    authorities = cast(
        Authorities, cast(Any, SimpleNamespace(transcript=Transcript(), context=contexts))
    )
    turn = Turn.of(turn_pb2.Claim(thread=THREAD, epoch=1, turn_id="turn_1"), attached())
    writer = Writer(authorities, turn)
    calls = [turn_pb2.RoundCall(operation_id=id) for id in bodies]
    operations = {
        id: journal_pb2.Operation(id=id, projection=journal_pb2.Projection(body=body))
        for id, body in bodies.items()
    }
    await writer.append_results(0, calls, operations, ())
    asker = Asker(authorities, cast(Any, None), turn, writer)
    for _ in range(2):
        with pytest.raises(GiveUp):
            await asker.ask(1)
    return contexts.given


def attached() -> Any:
    """Always attached."""

    async def wait() -> bool:
        return True

    return SimpleNamespace(wait=wait)


async def test_results_go_with_the_next_request_only() -> None:
    assert await given({"op_1": b"{}", "op_2": b"{}"}) == [["op_1", "op_2"], []]


async def test_many_or_large_results_are_read_by_the_context_service() -> None:
    assert await given({f"op_{n}": b"{}" for n in range(257)}) == [[], []]
    assert await given({f"op_{n}": bytes(400_000) for n in range(3)}) == [[], []]
