"""What the tools service says when it starts."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from foundation.bootstrap import Kernel
from foundation.settings import Settings
from services.tools.service import start


@pytest.mark.parametrize(("text", "said"), [("", []), (" B:80, 10.0.0.0/8 ", ["b:80,10.0.0.0/8"])])
async def test_what_an_operator_lets_out_is_logged_at_the_start(text: str, said: list[str]) -> None:
    settings = Settings.model_validate({"egress_allow": text})
    kernel = Kernel(settings, None, "service")
    try:
        with capture_logs() as logs:
            await start(kernel)
    finally:
        await kernel.stop()
    expected: list[Any] = [
        {"event": "egress_allowed", "log_level": "warning", "allowed": one} for one in said
    ]
    assert [one for one in logs if one["event"] == "egress_allowed"] == expected
