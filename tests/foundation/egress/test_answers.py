"""Whatever a server sends, it takes no more memory, traffic or time than the caller granted."""

import asyncio
import gzip
import zlib

import pytest

from foundation.egress.errors import EgressError, Reason
from foundation.egress.limits import MIB
from foundation.egress.redirects import Hop
from foundation.egress.targets import parse
from tests.foundation.egress.sites import (
    PUBLIC,
    Act,
    Call,
    Got,
    Names,
    ask,
    failure,
    guarding,
    site,
    within,
)

URL = "http://page.example/"


async def got(act: Act, **bounds: object) -> Got:
    async with site(act) as made:
        guard, _ = guarding(made, Names(page_example=[PUBLIC]))
        return await ask(guard, URL, within(**bounds))


async def refused(act: Act, **bounds: object) -> EgressError:
    async with site(act) as made:
        guard, _ = guarding(made, Names(page_example=[PUBLIC]))
        error = await failure(guard, URL, within(**bounds))
        assert error.is_sent
        assert error.host == "page.example:80"
        return error


def answering(body: bytes, status: str = "200 OK", **headers: str) -> Act:
    async def act(call: Call) -> None:
        await call.answer(status, body, **headers)

    return act


def streaming(head: bytes, piece: bytes, pause: float = 0.0) -> Act:
    """Sends `head`, then `piece` again and again until nobody listens."""

    async def act(call: Call) -> None:
        await call.send(head)
        while not call.writer.is_closing():
            await call.send(piece)
            await asyncio.sleep(pause)

    return act


HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
TEXT = b"all work and no play " * 40


def zipped(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)  # parameters are the same in every process


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", zipped(TEXT)),
        ("X-GZIP", zipped(TEXT)),
        ("gzip", zipped(TEXT[:400]) + zipped(TEXT[400:])),
        ("gzip", zipped(TEXT) + b"\0\0\0 padding"),
        ("deflate", zlib.compress(TEXT)),
        ("deflate", zlib.compress(TEXT)[2:-4]),
        ("identity", TEXT),
        ("", TEXT),
    ],
)
async def test_bodies_are_decompressed(encoding: str, body: bytes) -> None:
    answer = await got(answering(body, content_encoding=encoding))
    assert answer.body == TEXT
    assert "content-encoding" not in answer.headers or encoding == ""


async def test_only_what_we_can_bound_is_asked_for() -> None:
    asked: list[str] = []

    async def act(call: Call) -> None:
        asked.append(call.headers["accept-encoding"])
        await call.answer("200 OK")

    async with site(act) as made:
        guard, _ = guarding(made, Names(page_example=[PUBLIC]))
        await ask(guard, Hop("GET", parse(URL), {"accept-encoding": "br, zstd"}))
    assert asked == ["gzip, deflate"]


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("br", b"x"),
        ("zstd", b"x"),
        ("compress", b"x"),
        ("gzip, gzip", zipped(zipped(TEXT))),
        ("gzip", b"no gzip"),
        ("gzip", zipped(TEXT)[:-10]),
        ("gzip", zipped(TEXT)[:10] + b"\xff" * 40),
        ("deflate", b"\x78\x9c" + b"\xff" * 40),
        ("gzip", zipped(bytes(50 * MIB))),  # 50 KB on the wire
        ("deflate", zlib.compress(bytes(50 * MIB))),
    ],
)
async def test_bombs_and_damaged_bodies_are_refused(encoding: str, body: bytes) -> None:
    error = await refused(
        answering(body, content_encoding=encoding), wire_bytes=MIB, body_bytes=200 * MIB
    )
    assert error.reason is Reason.COMPRESSION


async def test_every_answer_on_a_kept_connection_has_the_whole_allowance() -> None:
    async with site(answering(b"x" * 900)) as made:
        guard, _ = guarding(made, Names(page_example=[PUBLIC]))
        async with guard.client(within(wire_bytes=1000, header_bytes=200)) as client:
            for _ in range(5):
                assert len((await client.get(URL)).content) == 900
        assert made.connections == 1


async def test_a_body_that_decompresses_to_too_much_is_refused() -> None:
    body = zipped(bytes(range(256)) * 8 * 1024)
    error = await refused(answering(body, content_encoding="gzip"), body_bytes=MIB)
    assert error.reason is Reason.TOO_LARGE


async def test_a_body_that_says_that_it_is_too_large_is_not_read() -> None:
    act = streaming(HEAD + b"content-length: 10000000\r\n\r\n", bytes(1000))
    assert (await refused(act, wire_bytes=MIB)).reason is Reason.TOO_LARGE


@pytest.mark.parametrize(
    "act",
    [
        streaming(HEAD + b"connection: close\r\n\r\n", bytes(65536)),
        streaming(CHUNKED, b"10000\r\n" + bytes(65536) + b"\r\n"),
        streaming(CHUNKED, b"1;" + b"x" * 60_000 + b"\r\na\r\n"),
        streaming(b"", b"HTTP/1.1 103 Early Hints\r\nlink: <" + b"x" * 60_000 + b">\r\n\r\n"),
    ],
    ids=["until closed", "chunks", "extensions of chunks", "interim answers"],
)
async def test_what_never_ends_is_cut_off(act: Act) -> None:
    assert (await refused(act, wire_bytes=MIB, body_bytes=4 * MIB)).reason is Reason.TOO_LARGE


@pytest.mark.parametrize(
    "act",
    [
        streaming(HEAD, b"x-padding: " + b"x" * 10_000 + b"\r\n"),
        streaming(HEAD + b"x: ", b"x" * 10_000),
        streaming(b"", b"x" * 10_000),
        answering(b"", "200 OK\r\nno colon"),
        answering(b"x", "abc"),
        streaming(b"SSH-2.0-OpenSSH_9.2\r\n", b"\r\n"),
    ],
)
async def test_headers_have_an_end(act: Act) -> None:
    assert (await refused(act)).reason is Reason.PROTOCOL


@pytest.mark.parametrize(
    "act",
    [
        streaming(HEAD + b"content-length: 100000\r\n\r\n", b"x", 0.02),
        streaming(CHUNKED, b"1\r\nx\r\n", 0.02),
        streaming(HEAD, b"x: y\r\n", 0.02),
        streaming(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.02),
    ],
    ids=["body", "chunks", "headers", "interim answers"],
)
async def test_a_drip_ends_with_the_whole_time(act: Act) -> None:
    error = await refused(act, total_seconds=0.3)
    assert error.reason is Reason.TIMEOUT
    assert error.is_transient


@pytest.mark.parametrize("sent", [b"", HEAD, HEAD + b"content-length: 5\r\n\r\nab"])
async def test_silence_ends_with_its_own_time(sent: bytes) -> None:
    async def act(call: Call) -> None:
        await call.send(sent)
        await asyncio.sleep(5)

    assert (await refused(act, idle_seconds=0.1)).reason is Reason.TIMEOUT


@pytest.mark.parametrize(
    "sent", [b"", HEAD, HEAD + b"content-length: 5\r\n\r\nab", CHUNKED + b"5\r\nab"]
)
async def test_an_answer_that_is_cut_off_is_none(sent: bytes) -> None:
    async def act(call: Call) -> None:
        await call.send(sent)
        call.writer.close()

    assert (await refused(act)).reason in (Reason.PROTOCOL, Reason.BROKEN)


@pytest.mark.parametrize(
    ("kind", "is_taken"),
    [
        ("text/html", True),
        ("TEXT/HTML; charset=utf-8", True),
        ("text/markdown", True),
        ("application/pdf", True),
        ("application/octet-stream", False),
        ("application/pdfx", False),
        ("textual/html", False),
        ("image/png", False),
        ("", False),
    ],
)
async def test_only_types_that_the_caller_takes_come_through(kind: str, is_taken: bool) -> None:
    act = answering(b"x", content_type=kind) if kind else answering(b"x")
    types = ("text/*", "application/pdf")
    if is_taken:
        assert (await got(act, media_types=types)).body == b"x"
    else:
        assert (await refused(act, media_types=types)).reason is Reason.MEDIA_TYPE


async def test_the_type_of_an_error_page_does_not_hide_its_status() -> None:
    act = answering(b"{}", "404 Not Found", content_type="image/png")
    assert (await got(act, media_types=("text/*",))).status == 404


async def test_a_head_and_a_304_have_no_body_to_judge() -> None:
    act = answering(b"", "304 Not Modified", content_encoding="br")
    assert (await got(act, media_types=("text/*",))).status == 304


async def test_errors_repeat_nothing_that_the_server_wrote() -> None:
    error = await refused(answering(b"", "200 OK\r\ncanary secret"))
    assert "canary" not in repr(error)
    assert error.__cause__ is None
    assert error.__suppress_context__
