"""How an answer travels: a pure plan of actions, and the one function that carries it out."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

from msgspec import Struct

from offline_model.answers import Answer, custom_event, event
from offline_model.errors import error_body
from offline_model.gates import Gates
from offline_model.scripts import Cut, Hold, Step

Send = Callable[[bytes], Awaitable[None]]


class Bytes(Struct):
    """Send these bytes."""

    data: bytes


class Pause(Struct):
    """Send nothing for a while."""

    seconds: float


class Gate(Struct):
    """Wait until the gate is released."""

    name: str


class Stall(Struct):
    """Nothing more, until the client is gone."""


class Stop(Struct):
    """The end of the body: proper, or a dropped connection."""

    how: Literal["end", "reset"]


Action = Bytes | Pause | Gate | Stall | Stop


def hold_of(step: Step) -> Hold | None:
    """The hold of a step; a bare name holds before the headers."""
    return Hold(step.hold) if isinstance(step.hold, str) else step.hold


def before(step: Step, *, streamed: bool) -> list[Action]:
    """What happens before the headers."""
    plan: list[Action] = []
    if step.delay_ms:
        plan.append(Pause(step.delay_ms / 1000))
    hold = hold_of(step)
    if hold and (hold.after is None or not streamed):
        plan.append(Gate(hold.name))
    return plan


def streamed(answer: Answer, request_id: str) -> list[Action]:
    """The body of a streamed answer with every fault of its step, adjacent bytes joined."""
    plan: list[Action] = []
    step = answer.step
    count = 0
    for frame in answer.frames():
        # A fault "after k deltas" takes the place of whatever would follow the k-th.
        last = frame.data.startswith(b"event: message_delta\n")
        if (frame.delta or last) and _interrupt(plan, step, count, request_id, last=last):
            return _joined(plan)
        plan.append(Bytes(frame.data))
        if frame.delta:
            count += 1
            _after_delta(plan, step, count)
    return _joined(plan)


def _after_delta(plan: list[Action], step: Step, count: int) -> None:
    if step.chunk_delay_ms:
        plan.append(Pause(step.chunk_delay_ms / 1000))
    if step.ping_every and count % step.ping_every == 0:
        plan.append(Bytes(event("ping").data))


def _interrupt(plan: list[Action], step: Step, count: int, request_id: str, *, last: bool) -> bool:
    """Adds what is due after ``count`` deltas; True when nothing may follow.

    ``last``: no delta follows, so everything that waits for a later one is due now.
    """

    def due(after: int) -> bool:
        return after == count or (last and after > count)

    hold = hold_of(step)
    if hold and hold.after is not None and due(hold.after):
        plan.append(Gate(hold.name))
    plan += [
        Bytes(custom_event(extra.event, extra.data).data)
        for extra in step.extra_events
        if due(extra.after)
    ]
    if step.stream_error and due(step.stream_error.after):
        error = step.stream_error
        data = error_body(error.type, error.message, request_id)
        plan += [Bytes(b"event: error\ndata: %s\n\n" % data), Stop("end")]
        return True
    cut = Cut(step.cut) if isinstance(step.cut, int) else step.cut
    if cut and due(cut.after):
        plan.append(Stop(cut.how))
        return True
    if step.stall is not None and due(step.stall):
        plan.append(Stall())
        return True
    return False


def _joined(plan: list[Action]) -> list[Action]:
    out: list[Action] = []
    run: list[bytes] = []
    for action in plan:
        if isinstance(action, Bytes):
            run.append(action.data)
            continue
        if run:
            out.append(Bytes(b"".join(run)))
            run = []
        out.append(action)
    if run:
        out.append(Bytes(b"".join(run)))
    return out


async def carry_out(
    plan: list[Action], send: Send, gates: Gates, gone: "asyncio.Future[None]"
) -> Literal["done", "reset", "gone"]:
    """Runs the plan. ``gone`` completes when the client disconnects; then nothing is sent."""
    for action in plan:
        if gone.done():
            return "gone"
        match action:
            case Bytes():
                await send(action.data)
            case Pause():
                await asyncio.wait([gone], timeout=action.seconds)
            case Gate():
                await gates.wait(action.name, gone)
            case Stall():
                await asyncio.wait([gone])
            case Stop():
                return "reset" if action.how == "reset" else "done"
    return "gone" if gone.done() else "done"
