"""One documented rule counts tokens: for the counting endpoint, for usage and for the window."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline_model.media import image_size, pdf_pages
from offline_model.requests import parse
from offline_model.tokens import Counted, count, image_tokens
from tests.offline_model.pictures import document, encoded, gif, image, jpeg, pdf, png, webp
from tests.offline_model.support import Server, assistant, request, result, use, user

CACHING = {"cache_control": {"type": "ephemeral"}}


def counted(*messages: Any, **more: Any) -> Counted:
    return count(parse(json.dumps(request(*messages, **more)).encode()))


def text_tokens(*messages: Any) -> int:
    return -(-len(json.dumps(request(*messages)["messages"])) // 4)


@pytest.mark.parametrize(
    "data",
    [
        png(640, 480),
        gif(640, 480),
        jpeg(640, 480),
        jpeg(640, 480, profile_bytes=240_000),
        webp(b"VP8 ", 640, 480),
        webp(b"VP8L", 640, 480),
        webp(b"VP8X", 640, 480),
    ],
)
def test_the_size_of_an_image_is_read_from_its_first_bytes(data: bytes) -> None:
    assert image_size(encoded(data)) == (640, 480)


@given(st.binary(max_size=60), st.sampled_from([png, gif, jpeg]), st.integers(0, 60))
def test_no_image_breaks_the_count(data: bytes, make: Any, cut: int) -> None:
    image_size(encoded(data))
    image_size(encoded(make(9, 9)[:cut] + data))
    assert image_size("no base64!") is None


@pytest.mark.parametrize(
    ("size", "tokens"),
    [
        ((1, 1), 1),
        ((200, 200), 54),
        ((1000, 1000), 1334),
        ((1092, 1092), 1590),
        ((1568, 1568), 1600),
        ((8000, 8000), 1600),
        ((8000, 800), 327),
    ],
)
def test_an_image_is_its_scaled_area(size: tuple[int, int], tokens: int) -> None:
    assert image_tokens(*size) == tokens


def test_base64_is_not_text() -> None:
    large = png(1000, 1000) + bytes(300_000)
    small = image(png(1000, 1000))
    empty = image(b"")
    base = text_tokens(user([empty])) - 1
    for block in (small, image(large)):
        found = counted(user([block]))
        assert found.input_tokens - 1334 in (base, base + 1)
        assert found.media[0].where == "messages.0.content.0.image.source.base64"


def test_media_are_found_wherever_they_may_stand() -> None:
    one, two = image(png(200, 200)), image(png(1000, 1000))
    page = {"type": "document", "source": {"type": "content", "content": [one]}}
    url = {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}
    found = counted(
        user([one, page, document(pdf(2))]), assistant([use("a")]), user([result("a", [two, url])])
    )
    assert [(medium.where, medium.tokens) for medium in found.media] == [
        ("messages.0.content.0.image.source.base64", 54),
        ("messages.0.content.1.document.source.content.0.image.source.base64", 54),
        ("messages.0.content.2.document.source.base64", 2 * 3100),
        ("messages.2.content.0.tool_result.content.0.image.source.base64", 1334),
        ("messages.2.content.0.tool_result.content.1.image.source.url", 1600),
    ]


def test_a_document_of_text_is_text() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "x" * 4000}
    block = {"type": "document", "source": source}
    assert counted(user([block])).input_tokens == text_tokens(user([block]))
    assert counted(user([block])).media == []


@pytest.mark.parametrize("compressed", [True, False])
def test_a_pdf_is_its_pages(compressed: bool) -> None:
    assert pdf_pages(encoded(pdf(7, compressed=compressed))) == 7
    assert pdf_pages(encoded(b"no pdf")) == 1


def test_a_prefix_counts_what_it_holds_as_a_whole() -> None:
    first, second = user([image(png(1000, 1000))]), user([image(png(200, 200) + bytes(9000))])
    found = counted(first, assistant("so"), second)
    shared = len(json.dumps([first])) - 1
    assert found.prefix(0) == 0
    assert found.prefix(shared) == counted(first).prefix(shared) > 1334
    in_the_second = found.media[1].start + 4000
    assert found.prefix(in_the_second) == found.prefix(found.media[1].start)
    whole = found.prefix(len(json.dumps([first, assistant("so"), second])))
    assert whole - found.prefix(in_the_second) > 54
    assert whole <= found.input_tokens


def test_usage_and_the_counting_endpoint_say_the_same(server: Server) -> None:
    messages = [user([image(png(1000, 1000) + bytes(9000)), {"type": "text", "text": "see"}])]
    body = json.dumps(request(*messages)).encode()
    told = server.raw(body, "/v1/messages/count_tokens").json()["input_tokens"]
    assert told == counted(*messages).input_tokens > 1334
    assert server.say(*messages)["usage"]["input_tokens"] == told
    more = [*messages, assistant("seen"), "go on"]
    server.say(*messages, **CACHING)
    usage = server.say(*more, **CACHING)["usage"]
    assert usage["cache_read_input_tokens"] > 1334
    total = usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]
    assert total == counted(*more).input_tokens
    assert server.get("/control/requests")["requests"][-1]["input_tokens"] == total
