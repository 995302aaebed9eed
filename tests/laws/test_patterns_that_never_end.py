"""P10 in a running system: a redaction pattern that never ends costs one result, no session."""

from pathlib import Path

from foundation.outcomes import FAILURE_TEXTS, PROJECTION_TIMEOUT
from tests.support.chat import Chat, custom_tool, is_idle, is_over, message, result
from tests.support.invariants import check_everything
from tests.support.model import Model, script, text, use
from tests.support.postgres import SessionPostgres
from tests.support.system import system_of
from tests.support.zygote import Zygote

TOOL = custom_tool("record")
STEPS = ({"content": [use("record"), use("record")]}, {"content": [text("done")]})


async def test_the_model_reads_why_and_the_session_goes_on(
    zygote: Zygote, model: Model, postgres: SessionPostgres, tmp_path: Path
) -> None:
    patterns = tmp_path / "patterns"
    patterns.write_text("(a+)+b\nsecret\n")
    environment = {"COUNTERFOIL_REDACTION_FILE": str(patterns)}
    async with system_of("embedded", zygote, model, postgres, **environment) as system:
        await system.start()
        chat = await Chat.open(system, tools=[TOOL])
        async with chat.stream() as stream:
            await chat.send(message(script(*STEPS)))
            one, two = (await stream.until(is_idle))[-1]["stop_reason"]["event_ids"]
            await chat.send(result(one, "a" * 60), result(two, "a secret"))
            events = await stream.until(is_over)
        assert events[-1]["stop_reason"] == {"type": "end_turn"}
        asked = await check_everything(chat, await chat.history())
        blocks = [block for said in asked[-1].messages for block in said["content"]]
        results = [block["content"] for block in blocks if block["type"] == "tool_result"]
        shown = [[part["text"] for part in content] for content in results]
        assert shown == [[FAILURE_TEXTS[PROJECTION_TIMEOUT]], ["a [redacted]"]]
