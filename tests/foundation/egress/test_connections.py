"""The address that was judged is the one that is dialled, for every connection anew."""

import asyncio
from pathlib import Path

import pytest

from foundation.egress.allowing import Allowed, parse_allowed
from foundation.egress.errors import Reason
from foundation.egress.guard import Guard
from foundation.egress.redirects import Hop
from foundation.egress.targets import parse
from tests.foundation.egress.sites import PUBLIC, Call, Names, ask, failure, guarding, site, within


async def hello(call: Call) -> None:
    await call.answer("200 OK", b"hello")


async def test_the_judged_address_is_dialled_and_the_host_named() -> None:
    async with site(hello) as made:
        names = Names(page_example=[PUBLIC])
        guard, network = guarding(made, names)
        got = await ask(guard, "http://page.example/x?y=1")
        assert (got.status, got.body) == (200, b"hello")
        assert network.dialled == [(PUBLIC, 80)]
        assert names.asked == ["page.example"]
        assert made.calls[0].line == "GET /x?y=1 HTTP/1.1"
        assert made.calls[0].headers["host"] == "page.example"


async def test_a_name_that_turns_private_is_refused_at_the_next_connection() -> None:
    """DNS rebinding: the first answer is public, the second is not."""
    async with site(hello) as made:
        names = Names(page_example=[PUBLIC, "10.0.0.1"])
        guard, network = guarding(made, names)
        assert (await ask(guard, "http://page.example/")).status == 200
        error = await failure(guard, "http://page.example/")
        assert (error.reason, error.is_sent) == (Reason.ADDRESS, False)
        assert "10.0.0.1" not in str(error)
        assert network.dialled == [(PUBLIC, 80)]


async def test_a_name_that_turns_private_while_a_connection_is_kept_is_not_asked_for() -> None:
    async with site(hello) as made:
        names = Names(page_example=[PUBLIC, "127.0.0.1"])
        guard, network = guarding(made, names)
        async with guard.client(within()) as client:
            for _ in range(3):
                assert (await client.get("http://page.example/")).text == "hello"
        assert network.dialled == [(PUBLIC, 80)]
        assert made.connections == 1


@pytest.mark.parametrize("answer", [f"{PUBLIC} 10.0.0.1", f"10.0.0.1 {PUBLIC}", "::1", "0.0.0.0"])
async def test_one_forbidden_answer_stops_all(answer: str) -> None:
    async with site(hello) as made:
        guard, network = guarding(made, Names(page_example=[answer]))
        error = await failure(guard, "http://page.example/")
        assert (error.reason, error.host) == (Reason.ADDRESS, "page.example:80")
        assert network.dialled == []


async def test_the_next_address_is_tried_when_one_is_deaf() -> None:
    async with site(hello) as made:
        guard, network = guarding(made, Names(page_example=[f"8.8.8.8 {PUBLIC}"]))
        network.deaf = {"8.8.8.8"}
        assert (await ask(guard, "http://page.example/")).status == 200
        assert network.dialled == [("8.8.8.8", 80), (PUBLIC, 80)]
        network.deaf.add(PUBLIC)
        error = await failure(guard, "http://page.example/")
        assert (error.reason, error.is_sent, error.is_transient) == (
            Reason.UNREACHABLE,
            False,
            True,
        )


async def test_a_resolver_that_is_slow_is_not_waited_for() -> None:
    async with site(hello) as made:
        names = Names(page_example=[PUBLIC])
        names.holds = asyncio.Event()
        guard, network = guarding(made, names)
        error = await failure(guard, "http://page.example/", within(connect_seconds=0.05))
        assert (error.reason, error.is_sent) == (Reason.CONNECT_TIMEOUT, False)
        assert network.dialled == []


async def test_a_name_that_nobody_knows_says_so() -> None:
    async with site(hello) as made:
        guard, _ = guarding(made, Names())
        error = await failure(guard, "http://gone.example/")
        assert error.reason is Reason.UNRESOLVED
        assert str(error).startswith("gone.example:80: the name does not exist")


async def test_localhost_of_the_real_resolver_is_refused_until_it_is_allowed() -> None:
    async with site(hello) as made:
        guard = Guard(Allowed())
        error = await failure(guard, f"http://127.0.0.1:{made.port}/")
        assert error.reason is Reason.ADDRESS
        for host in ("127.0.0.1", "localhost"):
            guard = Guard(parse_allowed(f"{host}:{made.port}"))
            assert (await ask(guard, f"http://{host}:{made.port}/")).body == b"hello"
            guard.close()


async def test_the_environment_has_no_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither its proxies nor its netrc."""
    netrc = tmp_path / "netrc"
    netrc.write_text("default login user password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://10.0.0.1:3128")
    async with site(hello) as made:
        guard, network = guarding(made, Names(page_example=[PUBLIC]))
        async with guard.client(within()) as client:
            assert (await client.get("http://page.example/")).status_code == 200
        assert network.dialled == [(PUBLIC, 80)]
        assert "authorization" not in made.calls[0].headers
        assert "proxy-authorization" not in made.calls[0].headers


async def test_the_host_is_that_of_the_url_whatever_a_header_says() -> None:
    async with site(hello) as made:
        guard, _ = guarding(made, Names(page_example=[PUBLIC]))
        hop = Hop("GET", parse("http://page.example:8080/"), {"host": "admin.internal"})
        assert (await ask(guard, hop)).status == 200
        assert made.calls[0].headers["host"] == "page.example:8080"


async def test_a_client_refuses_what_the_guard_refuses() -> None:
    async with site(hello) as made:
        guard, network = guarding(made, Names(page_example=["10.0.0.1"]))
        async with guard.client(within()) as client:
            for url in ("http://page.example/", "http://127.1/", "http://a:b@page.example/"):
                with pytest.raises(Exception, match=r"host|user") as caught:
                    await client.get(url)
                assert type(caught.value).__name__ == "EgressError"
        assert network.dialled == []
