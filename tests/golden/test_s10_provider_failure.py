"""S10: the provider fails, the turn is rescheduled, and goes on or ends; nothing queued is lost."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.golden.scene import RUNNING, Line, Scene, idle, play, queued, shown
from tests.support.chat import INTERRUPT, message
from tests.support.model import script, text
from tests.support.system import System

OVERLOADED = {"error": {"status": 529}}
LONG = {"error": {"status": 529, "retry_after": 50}}
BEGINS = [queued("user.message", "m1"), *RUNNING, shown("user.message", "m1")]
RESCHEDULED = [
    shown("session.status_rescheduled"),
    shown("session.thread_status_rescheduled", session_thread_id="@P"),
]


def fails(span: str) -> list[Line]:
    """A model request that brought no answer, and what is said about it."""
    return [
        shown("span.model_request_start", span),
        shown("span.model_request_end", model_request_start_id=f"@{span}", is_error=True),
        shown("session.error"),
    ]


def answers(span: str) -> list[Line]:
    return [
        shown("span.model_request_start", span),
        shown("agent.message"),
        shown("span.model_request_end", model_request_start_id=f"@{span}", is_error=False),
    ]


async def check(scene: Scene, lines: Sequence[Line], *errors: tuple[str, str]) -> None:
    """The next events are these, and their errors have these types and retry statuses."""
    shown_errors = [e["error"] for e in await scene.shows(*lines) if e["type"] == "session.error"]
    assert [(e["type"], e["retry_status"]["type"]) for e in shown_errors] == list(errors)


async def status_of(scene: Scene) -> str:
    client, id = scene.chat.system.client(), scene.chat.id
    return (await client.beta.sessions.retrieve(id)).status


FAILURES = [
    ("529", {"error": {"status": 529}}, "model_overloaded_error"),
    ("503", {"error": {"status": 503}}, "model_overloaded_error"),
    ("429", {"error": {"status": 429, "retry_after": 0.01}}, "model_rate_limited_error"),
    ("500", {"error": {"status": 500}}, "model_request_failed_error"),
    ("504", {"error": {"status": 504}}, "model_request_failed_error"),
    ("408", {"error": {"status": 408}}, "model_request_failed_error"),
    ("409", {"error": {"status": 409}}, "model_request_failed_error"),
    ("no-connection", {"disconnect": True}, "model_request_failed_error"),
    ("error-event", {"stream_error": {"after": 0}}, "model_overloaded_error"),
    ("no-message-stop", {"cut": 0}, "model_request_failed_error"),
]


@pytest.mark.parametrize(
    ("fault", "type_"), [row[1:] for row in FAILURES], ids=[row[0] for row in FAILURES]
)
async def test_a_failure_that_passes_is_shown_and_the_turn_goes_on(
    running_system: System, fault: dict[str, Any], type_: str
) -> None:
    async with play(running_system) as scene:
        await scene.chat.send(message(script({"content": [text("Here.")], **fault, "times": 2})))
        again = [*RESCHEDULED, *RUNNING]
        lines = [*BEGINS, *fails("a"), *again, *fails("b"), *again, *answers("c")]
        await check(scene, [*lines, *idle("end_turn")], *[(type_, "retrying")] * 2)


async def test_a_failure_that_stays_ends_the_turn_and_queued_input_runs(
    running_system: System,
) -> None:
    async with play(running_system) as scene:
        await scene.chat.send(message(script(OVERLOADED)))
        lines = list(BEGINS)
        for span in ("a", "b", "c"):
            lines += [*fails(span), *RESCHEDULED, *RUNNING]
        lines += [*fails("d"), *idle("retries_exhausted")]
        type_ = "model_overloaded_error"
        await check(scene, lines, *[(type_, "retrying")] * 3, (type_, "exhausted"))
        await scene.chat.send(message(script("Here again.")))
        await scene.shows(
            queued("user.message", "m2"),
            *RUNNING,
            shown("user.message", "m2"),
            *answers("e"),
            *idle("end_turn"),
        )


PERMANENT = [
    (400, "model_request_failed_error"),
    (401, "model_request_failed_error"),
    (402, "billing_error"),
    (403, "model_request_failed_error"),
    (404, "model_request_failed_error"),
]


@pytest.mark.parametrize(("status", "type_"), PERMANENT, ids=[str(row[0]) for row in PERMANENT])
async def test_a_failure_that_no_retry_mends_ends_the_turn_at_once(
    running_system: System, status: int, type_: str
) -> None:
    async with play(running_system) as scene:
        await scene.chat.send(message(script({"error": {"status": status}})))
        lines = [*BEGINS, *fails("a"), *idle("retries_exhausted")]
        await check(scene, lines, (type_, "exhausted"))


async def test_input_queues_behind_a_waiting_turn_and_an_interrupt_ends_the_wait(
    running_system: System,
) -> None:
    async with play(running_system) as scene:
        await scene.chat.send(message(script(LONG)))
        await scene.shows(*BEGINS, *fails("a"), *RESCHEDULED)
        assert await status_of(scene) == "rescheduling"
        await scene.chat.send(message(script("And then this.")))
        await scene.shows(queued("user.message", "m2"))
        assert await status_of(scene) == "rescheduling"
        await scene.chat.send(INTERRUPT)
        await scene.shows(
            queued("user.interrupt", "i1"),
            *RUNNING,
            shown("user.interrupt", "i1"),
            *idle("end_turn"),
            *RUNNING,
            shown("user.message", "m2"),
            *answers("b"),
            *idle("end_turn"),
        )
