"""Text of a page or a PDF, made in a process of its own.

Documents are written by strangers, and parsers of documents are large: what hangs, grows or dies
here takes nothing with it. The child sees none of our settings; it gets the body on its standard
input and writes JSON.
"""

import asyncio
import json
import os
import resource
import sys
from dataclasses import dataclass
from io import BytesIO

HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
PDF_TYPE = "application/pdf"
TEXT_TYPES = frozenset(
    {"application/json", "application/xml", "application/rss+xml", "application/atom+xml"}
)
MEDIA_TYPES = ("text/*", PDF_TYPE, *sorted(HTML_TYPES - {"text/html"} | TEXT_TYPES))
"""What text can be made of."""

_SECONDS_MAX = 20
_MEMORY_BYTES_MAX = 1 << 30
_PAGES_MAX = 500
_TEXT_CHARS_MAX = 16 * 1024 * 1024


class NoText(Exception):
    """No text came out of a document: it is damaged, too large, or has none."""


@dataclass(frozen=True, slots=True)
class Text:
    """What a document says."""

    text: str
    """Markdown of a page, plain text of anything else."""
    title: str = ""


async def extract(kind: str, charset: str, body: bytes, url: str) -> Text:
    """The text of a body of this media type. Raises NoText."""
    if kind not in HTML_TYPES and kind != PDF_TYPE:
        return Text(decoded(body, charset))
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-B", "-m", __name__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    head = json.dumps([kind, charset, url]).encode() + b"\n"
    try:
        async with asyncio.timeout(_SECONDS_MAX):
            output, _ = await child.communicate(head + body)
    except TimeoutError:
        raise NoText(f"no text within {_SECONDS_MAX} s") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode != 0:
        raise NoText("the document is damaged, or too large to be read")
    made = Text(**json.loads(output))
    if not made.text.strip():
        raise NoText("the document has no text")
    return made


def decoded(body: bytes, charset: str) -> str:
    """The characters of a text; those that are none become U+FFFD."""
    try:
        return body.decode(charset or "utf-8", "replace")
    except LookupError:
        return body.decode("utf-8", "replace")


def page_text(body: bytes, charset: str, url: str) -> Text:
    """Markdown of what a page is about; all its text where nothing stands out."""
    import trafilatura  # only the child pays for it

    # Without a charset the library looks for the page's own.
    source = decoded(body, charset) if charset else body
    page = trafilatura.load_html(source)
    if page is None:
        return Text("")
    title = trafilatura.extract_metadata(page, default_url=url).title
    found = trafilatura.extract(
        source,
        url=url,
        output_format="markdown",
        include_links=True,
        include_comments=False,
        favor_recall=True,
    )
    return Text(found or trafilatura.html2txt(source) or "", title or "")


def pdf_text(body: bytes) -> Text:
    """The text of a PDF, page by page."""
    import pypdf

    reader = pypdf.PdfReader(BytesIO(body))
    if len(reader.pages) > _PAGES_MAX:
        raise NoText(f"the document has more than {_PAGES_MAX} pages")
    pages = [page.extract_text() for page in reader.pages]
    title = reader.metadata.title if reader.metadata else None
    return Text("\n\n".join(pages), title or "")


def main() -> None:
    """The child: bounded in time and memory by the kernel."""
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS_MAX, _SECONDS_MAX))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES_MAX, _MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    kind, charset, url = json.loads(sys.stdin.buffer.readline())
    body = sys.stdin.buffer.read()
    made = pdf_text(body) if kind == PDF_TYPE else page_text(body, charset, url)
    text = {"text": made.text[:_TEXT_CHARS_MAX], "title": made.title[:1000]}
    sys.stdout.write(json.dumps(text))


if __name__ == "__main__":
    main()
