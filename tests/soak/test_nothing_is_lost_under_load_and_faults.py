"""The soak in short, and that its proof finds what is wrong."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.soak.proof import Promised, grown, wrong_answers, wrong_inputs, wrong_stream
from tests.soak.readers import Frame
from tests.soak.run import Plan, soak
from tests.support.model import Model
from tests.support.postgres import session_postgres
from tests.support.zygote import Zygote

SAID: dict[str, Any] = {"id": "said", "type": "user.message"}
ANSWER: dict[str, Any] = {
    "id": "answer",
    "type": "agent.message",
    "content": [{"type": "text", "text": "answer 1"}],
}
IDLE: dict[str, Any] = {"id": "idle", "type": "session.status_idle"}
HISTORY = [SAID, ANSWER, IDLE]
PROMISED = Promised(accepted=["said"], answers=["answer 1"])
QUEUED, MARKED = Frame(1, "said", queued=True), Frame(2, "said", queued=False)
REST = [Frame(3, "answer", queued=False), Frame(4, "idle", queued=False)]
FRAMES = [QUEUED, MARKED, *REST]


@pytest.mark.full
@pytest.mark.timeout(300)
async def test_nothing_is_lost_under_load_and_faults(zygote: Zygote, model: Model) -> None:
    said: list[str] = []
    with session_postgres() as postgres:
        plan = Plan(streams=100, writers=8, seconds=20)
        outcome = await soak(plan, zygote, model, postgres, said.append)
    assert not outcome.problems, "\n".join([*said, outcome.summary()])
    assert outcome.reconnections >= plan.streams
    assert len(outcome.turns) >= plan.writers


@pytest.mark.parametrize(
    ("history", "promised", "found"),
    [
        (HISTORY, PROMISED, []),
        (HISTORY[1:], PROMISED, ["input said is lost"]),
        ([SAID, *HISTORY], PROMISED, ["input said is doubled"]),
        (
            [{**SAID, "id": "twin"}, *HISTORY],
            PROMISED,
            ["input twin was never acknowledged: another one's double"],
        ),
        ([SAID, IDLE], PROMISED, ["the turn of 'answer 1' has 0 final answers"]),
        ([ANSWER, *HISTORY], PROMISED, ["the turn of 'answer 1' has 2 final answers"]),
    ],
)
def test_a_lost_or_doubled_input_or_answer_is_found(
    history: Sequence[dict[str, Any]], promised: Promised, found: list[str]
) -> None:
    assert [*wrong_inputs(promised, history), *wrong_answers(promised, history)] == found


@pytest.mark.parametrize(
    ("frames", "found"),
    [
        (FRAMES, []),
        ([MARKED, *REST], []),
        ([QUEUED, *REST], ["user.message said was not streamed"]),
        (FRAMES[:-1], ["session.status_idle idle was not streamed"]),
        ([*FRAMES, replace(MARKED, position=5)], ["said was streamed 2 times"]),
        ([*FRAMES, Frame(5, "new", queued=False)], ["new was streamed and is not listed"]),
        ([*FRAMES, replace(QUEUED, position=5)], ["said was streamed as queued 2 times"]),
        ([*FRAMES, Frame(5, "idle", queued=True)], ["idle was streamed as queued 1 times"]),
        ([MARKED, QUEUED, *REST], ["position 1 came after 2"]),
    ],
)
def test_a_gap_or_a_repetition_in_a_stream_is_found(
    frames: Sequence[Frame], found: list[str]
) -> None:
    assert list(wrong_stream(frames, HISTORY)) == found


def test_a_process_that_grows_is_found() -> None:
    megabytes = [100 + 2 * minute for minute in range(60)]
    assert grown([size * 10**6 for size in megabytes]) == "grew from 119 to 199 MB"
    assert grown([100 * 10**6] * 60) is None
    assert grown([]) is None
