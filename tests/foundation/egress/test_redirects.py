"""Every redirect is judged as the first request was, and takes nothing along that it must not."""

from collections.abc import Mapping

import pytest

from foundation.egress.errors import EgressError, Reason
from foundation.egress.redirects import Hop, follow
from foundation.egress.targets import parse
from tests.foundation.egress.sites import PUBLIC, Call, Names, ask, failure, guarding, site, within

HEADERS = {
    "accept": "text/html",
    "authorization": "Bearer secret",
    "content-type": "text/plain",
    "cookie": "a=b",
    "mcp-session-id": "1",
    "user-agent": "us",
    "x-api-key": "secret",
}
PLAIN = {name: HEADERS[name] for name in ("accept", "user-agent")}
BODYLESS = {name: value for name, value in HEADERS.items() if name != "content-type"}
HERE = "https://a.example/dir/page"


def hop(method: str = "GET", url: str = HERE, content: bytes | None = None) -> Hop:
    return Hop(method, parse(url), HEADERS, content)


GOES = (
    # the request, status, location; then method, URL, headers and body of the next one
    (hop(), 302, "/x", "GET", "https://a.example/x", HEADERS, None),
    (hop(), 301, "x?y", "GET", "https://a.example/dir/x?y", HEADERS, None),
    (hop(), 307, "https://A.example.:443/x#y", "GET", "https://a.example/x", HEADERS, None),
    (hop(), 308, "https://b.example/", "GET", "https://b.example/", PLAIN, None),
    (hop(), 302, "//b.example/x", "GET", "https://b.example/x", PLAIN, None),
    (hop(), 302, "https://a.example:8443/", "GET", "https://a.example:8443/", PLAIN, None),
    (hop("HEAD"), 303, "/x", "HEAD", "https://a.example/x", HEADERS, None),
    (hop(url="http://a.example/"), 301, HERE, "GET", HERE, PLAIN, None),
    (hop("POST", content=b"x"), 303, "/x", "GET", "https://a.example/x", BODYLESS, None),
    (hop("POST", content=b"x"), 302, "/x", "GET", "https://a.example/x", BODYLESS, None),
    (
        hop("POST", content=b"x"),
        301,
        "https://b.example/",
        "GET",
        "https://b.example/",
        PLAIN,
        None,
    ),
    (hop("POST", content=b"x"), 307, "/x", "POST", "https://a.example/x", HEADERS, b"x"),
    (hop("PUT", content=b"x"), 308, "/x", "PUT", "https://a.example/x", HEADERS, b"x"),
)
STOPS = (
    (hop(), "http://a.example/", "from https to http"),
    (hop(), "http://b.example/", "from https to http"),
    (hop("POST", content=b"x"), "https://b.example/", "body to another server"),
    (hop("POST", content=b"x"), "https://a.example:8443/", "body to another server"),
    (hop(url="http://a.example/"), "ftp://a.example/", "no http or https"),
    (hop(), "file:///etc/passwd", "no http or https"),
    (hop(), "javascript:alert(1)", "no http or https"),
    (hop(), "https://user:secret@a.example/", "no http or https"),
    (hop(), "https://127.1/", "no http or https"),
    (hop(), "https://[fe80::1%25eth0]/", "no http or https"),
    (hop(), "https://a.example\\@b.example/", "no http or https"),
    (hop(), "https:// a.example/", "no http or https"),
    (hop(), "https://a.example:99999/", "no http or https"),
)


@pytest.mark.parametrize(("before", "status", "location", "method", "url", "headers", "body"), GOES)
def test_a_redirect_takes_along_what_its_server_may_see(
    before: Hop,
    status: int,
    location: str,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | None,
) -> None:
    after = follow(before, status, location)
    assert (after.method, str(after.url), after.content) == (method, url, body)
    assert after.headers == headers


@pytest.mark.parametrize(("before", "location", "why"), STOPS)
def test_a_redirect_that_must_not_be_followed_stops_the_exchange(
    before: Hop, location: str, why: str
) -> None:
    with pytest.raises(EgressError, match=why) as caught:
        follow(before, 307, location)
    assert caught.value.reason is Reason.REDIRECT
    assert caught.value.is_sent
    assert "secret" not in str(caught.value)


FORBIDDEN = (
    "http://127.0.0.1/",
    "http://[::1]/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[::ffff:127.0.0.1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://localhost/",
    "http://inside.example/",
    "http://mixed.example/",
    "http://page.example:6379/",
)


ANY = ("301 Moved", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect")


@pytest.mark.parametrize(
    ("location", "status"),
    [*((place, "302 Found") for place in FORBIDDEN), *((FORBIDDEN[0], status) for status in ANY)],
)
async def test_no_redirect_leads_inside(location: str, status: str) -> None:
    async def act(call: Call) -> None:
        await call.answer(status, location=location)

    async with site(act) as made:
        names = Names(
            page_example=[PUBLIC], inside_example=["10.0.0.1"], mixed_example=[f"{PUBLIC} ::1"]
        )
        guard, network = guarding(made, names)
        error = await failure(guard, "http://page.example/")
        assert error.reason in (Reason.ADDRESS, Reason.PORT)
        assert error.is_sent
        assert network.dialled == [(PUBLIC, 80)]


async def test_redirects_are_counted_and_share_the_time() -> None:
    async def act(call: Call) -> None:
        await call.answer("302 Found", location=call.line.split()[1] + "x")

    async with site(act) as made:
        guard, _ = guarding(made, Names(page_example=[PUBLIC]))
        error = await failure(guard, "http://page.example/", within(redirects_max=3))
        assert error.reason is Reason.REDIRECT
        assert [call.line.split()[1] for call in made.calls] == ["/", "/x", "/xx", "/xxx"]
        assert (await failure(guard, "http://page.example/", within(redirects_max=0))).is_sent
        endless = within(redirects_max=10**9, total_seconds=0.3)
        assert (await failure(guard, "http://page.example/", endless)).reason is Reason.TIMEOUT


async def test_another_server_sees_no_credentials_and_no_cookies() -> None:
    async def act(call: Call) -> None:
        if call.headers["host"] == "a.example":
            await call.answer("302 Found", location="http://b.example/", set_cookie="id=1; Path=/")
        else:
            await call.answer("200 OK", b"here")

    async with site(act) as made:
        guard, _ = guarding(made, Names(a_example=[PUBLIC], b_example=["1.1.1.1"]))
        answer = await ask(guard, Hop("GET", parse("http://a.example/"), HEADERS))
        assert answer.body == b"here"
        assert answer.urls == ["http://a.example/", "http://b.example/"]
        first, second = made.calls
        assert first.headers["authorization"] == "Bearer secret"
        ours = {"host", "accept-encoding", "connection"}
        assert set(second.headers) - ours == {"accept", "user-agent"}


async def test_a_client_follows_nothing_by_itself() -> None:
    async def act(call: Call) -> None:
        await call.answer("302 Found", location="http://127.0.0.1/")

    async with site(act) as made:
        guard, _ = guarding(made, Names(page_example=[PUBLIC]))
        async with guard.client(within()) as client:
            assert (await client.get("http://page.example/")).status_code == 302
            with pytest.raises(EgressError):
                await client.get("http://page.example/", follow_redirects=True)
