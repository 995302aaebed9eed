"""S2: two custom tools in one response, answered after the idle and before it."""

from tests.golden.scene import RUNNING, Line, idle, play, queued, shown
from tests.support.chat import custom_tool, message, result
from tests.support.model import script, text, use
from tests.support.system import System

TOOLS = [custom_tool("decide")]
ASKS = script(
    {"content": [use("decide", text="1"), use("decide", text="2")]},
    {"content": [text("Decided.")]},
)
CALLS = [
    shown("agent.custom_tool_use", "t1", name="decide", input={"text": "1"}),
    shown("agent.custom_tool_use", "t2", name="decide", input={"text": "2"}),
]


def begins() -> list[Line]:
    return [
        queued("user.message", "m1"),
        *RUNNING,
        shown("user.message", "m1"),
        shown("span.model_request_start", "b"),
        *CALLS,
        shown("span.model_request_end", model_request_start_id="@b", is_error=False),
    ]


def answered(label: str, text: str) -> Line:
    content = [{"type": "text", "text": text}]
    return shown("user.custom_tool_result", custom_tool_use_id=f"@{label}", content=content)


def goes_on(span: str = "c") -> list[Line]:
    return [
        shown("span.model_request_start", span),
        shown("agent.message", content=[{"type": "text", "text": "Decided."}]),
        shown("span.model_request_end", model_request_start_id=f"@{span}", is_error=False),
        *idle("end_turn"),
    ]


async def test_each_answer_announces_what_is_left(running_system: System) -> None:
    async with play(running_system, tools=TOOLS) as scene:
        await scene.chat.send(message(ASKS))
        await scene.shows(*begins(), *idle("requires_action", "t1", "t2"))
        await scene.chat.send(result(scene.id("t1"), "one"))
        await scene.shows(answered("t1", "one"), *idle("requires_action", "t2"))
        await scene.chat.send(result(scene.id("t2"), "two"))
        await scene.shows(answered("t2", "two"), *RUNNING, *goes_on())


async def test_the_rest_is_announced_in_use_order(running_system: System) -> None:
    async with play(running_system, tools=TOOLS) as scene:
        await scene.chat.send(message(ASKS))
        await scene.shows(*begins(), *idle("requires_action", "t1", "t2"))
        await scene.chat.send(result(scene.id("t2"), "two"))
        await scene.shows(answered("t2", "two"), *idle("requires_action", "t1"))
        await scene.chat.send(result(scene.id("t1"), "one"))
        await scene.shows(answered("t1", "one"), *RUNNING, *goes_on())


async def test_both_answers_in_one_request_resume_at_once(running_system: System) -> None:
    async with play(running_system, tools=TOOLS) as scene:
        await scene.chat.send(message(ASKS))
        await scene.shows(*begins(), *idle("requires_action", "t1", "t2"))
        await scene.chat.send(result(scene.id("t1"), "one"), result(scene.id("t2"), "two"))
        answers = [answered("t1", "one"), answered("t2", "two")]
        await scene.shows(*answers, *RUNNING, *goes_on())


async def test_answers_before_the_idle_is_due_leave_no_idle(running_system: System) -> None:
    """A platform call holds the turn, so both answers are there before it could park."""
    calls = [use("decide", text="1"), use("decide", text="2"), use("note", text="slow")]
    system = running_system
    system.effects.hold()
    async with play(system, tools=TOOLS) as scene:
        await scene.chat.send(message(script({"content": calls}, {"content": [text("Decided.")]})))
        await scene.shows(
            queued("user.message", "m1"),
            *RUNNING,
            shown("user.message", "m1"),
            shown("span.model_request_start", "b"),
            *CALLS,
            shown("agent.tool_use", "n", name="note", evaluated_permission="allow"),
            shown("span.model_request_end", model_request_start_id="@b"),
        )
        await scene.chat.send(result(scene.id("t1"), "one"), result(scene.id("t2"), "two"))
        await scene.shows(answered("t1", "one"), answered("t2", "two"))
        await system.effects.wait(1)
        system.effects.release()
        await scene.shows(shown("agent.tool_result", tool_use_id="@n"), *goes_on())
