"""What an operator lets out is checked before anything starts; errors reach who asked."""

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from foundation.egress.allowing import parse_allowed
from foundation.egress.errors import EgressError, Reason, egress_error_in
from foundation.egress.guard import Guard
from foundation.settings import Settings
from tests.foundation.egress.sites import PUBLIC, Call, Names, failure, guarding, site


def test_a_wrong_entry_refuses_the_start_with_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERFOIL_EGRESS_ALLOW", "mcp.internal:80,10.0.0.1/8")
    with pytest.raises(ValidationError, match=r"egress_allow\n.*entry '10\.0\.0\.1/8'"):
        Settings.model_validate({})


async def test_a_refusal_is_logged_without_the_url() -> None:
    async def never(call: Call) -> None:
        raise AssertionError

    async with site(never) as made:
        guard, _ = guarding(made, Names(page_example=["10.0.0.1"]))
        with capture_logs() as logs:
            await failure(guard, "http://page.example/path-secret?key=secret")
    assert logs == [
        {
            "event": "egress_failed",
            "log_level": "info",
            "reason": "address",
            "host": "page.example:80",
        }
    ]


def test_addresses_can_be_checked_before_anything_is_sent() -> None:
    guard = Guard(parse_allowed("127.0.0.1:3000"))
    assert str(guard.check("HTTPS://Page.Example.:443")) == "https://page.example/"
    assert str(guard.check("http://127.0.0.1:3000/mcp")) == "http://127.0.0.1:3000/mcp"
    for url in ("http://127.0.0.1/mcp", "http://localhost:3000/mcp", f"http://{PUBLIC}:22/"):
        with pytest.raises(EgressError):
            guard.check(url)


def test_an_error_is_found_in_the_groups_and_causes_of_a_library() -> None:
    inner = EgressError(Reason.ADDRESS, "page.example:80", "no")
    outer = RuntimeError("no connection")
    outer.__cause__ = ExceptionGroup("tasks", [ValueError(), ExceptionGroup("more", [inner])])
    assert egress_error_in(outer) is inner
    assert egress_error_in(inner) is inner
    assert egress_error_in(ExceptionGroup("tasks", [ValueError()])) is None
    inner.__cause__ = outer
    assert egress_error_in(outer) is inner
