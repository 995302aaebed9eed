"""A page's text comes with the proof of where it came from, and nothing of a page harms us."""

import hashlib
from collections.abc import Sequence
from io import BytesIO

import pytest
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from foundation.egress.errors import EgressError, Reason
from services.tools.web.extracting import NoText, extract
from services.tools.web.reading import LIMITS, Page, PageFailed, PageReader
from tests.foundation.egress.sites import PUBLIC, Act, Call, Names, guarding, site

PARAGRAPH = "<p>A long paragraph \u00fcber nothing in particular, with quite some words in it.</p>"
HTML = f"""<html><head><title>T\u00fcr</title></head><body><nav><a href="/home">Home</a></nav>
<article><h1>Heading</h1>{PARAGRAPH}<p>See <a href="/next?x=1">the next one</a>, which has as many
words as this one has, or more of them.</p><ul><li>first</li><li>second</li></ul>{PARAGRAPH}
</article><script>alert("no")</script></body></html>"""


async def read(act: Act, allowed: Sequence[str] = (), path: str = "") -> Page:
    async with site(act) as made:
        guard, _ = guarding(made, Names(page_example=[PUBLIC], other_example=["1.1.1.1"]))
        async with guard.transport(LIMITS) as transport:
            return await PageReader(transport).read(f"http://page.example/{path}", allowed=allowed)


def answering(body: bytes, kind: str, status: str = "200 OK") -> Act:
    async def act(call: Call) -> None:
        await call.answer(status, body, content_type=kind)

    return act


async def test_a_page_becomes_markdown_with_its_provenance() -> None:
    body = HTML.encode("latin-1")

    async def act(call: Call) -> None:
        if call.line.startswith("GET /moved"):
            await call.answer("302 Found", location="/page")
        else:
            await call.answer("200 OK", body, content_type="text/html; charset=ISO-8859-1")

    page = await read(act, path="moved")
    assert page.urls == ("http://page.example/moved", "http://page.example/page")
    assert page.body_sha256 == hashlib.sha256(body).digest()
    assert (page.media_type, page.body_bytes) == ("text/html", len(body))
    assert page.title == "Heading"
    assert "A long paragraph \u00fcber" in page.text
    assert "[the next one](http://page.example/next?x=1)" in page.text
    assert "- first" in page.text
    assert "alert" not in page.text


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "text/markdown; charset=utf-8"])
async def test_texts_stay_as_they_are(kind: str) -> None:
    assert (await read(answering('{"a": "\u00fc"}'.encode(), kind))).text == '{"a": "\u00fc"}'


async def test_no_charset_makes_a_text_unreadable() -> None:
    page = await read(answering(b"a\xffb", "text/plain; charset=none-such"))
    assert page.text == "a\ufffdb"


def pdf(text: str) -> bytes:
    writer = PdfWriter()
    page = writer.add_blank_page(200, 200)
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    fonts = DictionaryObject({NameObject("/F1"): font})
    page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
    stream = DecodedStreamObject()
    stream.set_data(f"BT /F1 12 Tf 10 100 Td ({text}) Tj ET".encode())
    page[NameObject("/Contents")] = stream
    writer.add_metadata({"/Title": "A paper"})
    made = BytesIO()
    writer.write(made)
    return made.getvalue()


async def test_a_pdf_becomes_text() -> None:
    page = await read(answering(pdf("Hello from a paper"), "application/pdf"))
    assert (page.title, page.text.strip()) == ("A paper", "Hello from a paper")


@pytest.mark.parametrize("body", [b"", b"%PDF-1.7 nothing", pdf("")])
async def test_a_document_without_text_says_so(body: bytes) -> None:
    with pytest.raises(NoText):
        await extract("application/pdf", "", body, "http://page.example/")


async def test_a_document_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.tools.web.extracting._SECONDS_MAX", 0.01)
    with pytest.raises(NoText, match="no text within"):
        await extract("text/html", "", HTML.encode(), "http://page.example/")


@pytest.mark.parametrize(
    "body",
    [
        b"<div>" * 200_000,
        b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]><p>&b;',
        b"<html><body>" + b"\xff\x00\xed\xa0\x80" * 1000,
    ],
    ids=["deep", "entities", "noise"],
)
async def test_a_hostile_page_gives_text_or_an_error(body: bytes) -> None:
    try:
        found = await extract("text/html", "", body, "http://page.example/")
    except NoText:
        return
    assert len(found.text) < 10 * len(body)


async def test_an_image_is_not_read() -> None:
    with pytest.raises(EgressError) as caught:
        await read(answering(b"x", "image/png"))
    assert caught.value.reason is Reason.MEDIA_TYPE


async def test_an_error_page_is_not_a_page() -> None:
    with pytest.raises(PageFailed, match=r"^page\.example:80: .* status 404$"):
        await read(answering(b"secret", "text/html", "404 Not Found"))


async def test_no_redirect_leaves_the_tool_s_domains() -> None:
    async def act(call: Call) -> None:
        await call.answer("302 Found", location="http://other.example/")

    with pytest.raises(EgressError) as caught:
        await read(act, allowed=["page.example"])
    assert (caught.value.reason, caught.value.is_sent) == (Reason.DOMAIN, True)
    with pytest.raises(EgressError) as caught:
        await read(act, allowed=["other.example"])
    assert (caught.value.reason, caught.value.is_sent) == (Reason.DOMAIN, False)
