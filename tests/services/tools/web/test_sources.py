"""A model fetches only what others put into its context, and only where its tool may go."""

import pytest
from counterfoil.registry.v1 import agent_pb2
from google.protobuf.json_format import ParseDict

from foundation.egress.targets import parse
from services.tools.web.domains import permits
from services.tools.web.sources import Origin, Seen, may_fetch, urls_in

FOUND = {
    "see https://a.example/b.": ["https://a.example/b"],
    "(https://a.example/b)": ["https://a.example/b"],
    "https://a.example/b_(c)": ["https://a.example/b_(c)"],
    "[x](https://a.example/b), <https://b.example>": ["https://a.example/b", "https://b.example/"],
    '{"url":"https://a.example/?q=1&r=2"}': ["https://a.example/?q=1&r=2"],
    "HTTPS://A.Example/B#c!": ["https://a.example/B"],
    "**https://a.example/x**": ["https://a.example/x"],
    "https://user:secret@a.example/ http://127.1/ ftp://a.example/ https://": [],
    "a.example/b //a.example": [],
    "https://a.example/\nb": ["https://a.example/"],
    "https://a.example/" + "x" * 3000: [],
}


@pytest.mark.parametrize(("text", "found"), FOUND.items())
def test_urls_are_found_in_texts(text: str, found: list[str]) -> None:
    assert list(urls_in(text)) == found


URL = "https://a.example/b?c=d"
SEEN = {
    "user": Seen(Origin.USER, f"read {URL}."),
    "crm": Seen(Origin.CLIENT_TOOL, URL, "crm"),
    "web_search": Seen(Origin.SERVER_TOOL, f"1. {URL}", "web_search"),
}
ONLY_CRM = {"type": "URL_SOURCE_TYPE_ONLY", "tools": [{"name": "crm"}]}
NOT_CRM = {"type": "URL_SOURCE_TYPE_EXCEPT", "tools": [{"name": "crm"}]}
NONE = {"type": "URL_SOURCE_TYPE_NONE"}
ALL = {"type": "URL_SOURCE_TYPE_ALL"}


@pytest.mark.parametrize(
    ("who", "sources", "may"),
    [
        ("user", {}, True),
        ("user", {"userInput": ALL}, True),
        ("user", {"userInput": NONE}, False),
        ("user", {"clientToolResults": NONE, "serverToolResults": NONE}, True),
        ("crm", {}, True),
        ("crm", {"clientToolResults": NONE}, False),
        ("crm", {"clientToolResults": ONLY_CRM}, True),
        ("crm", {"clientToolResults": NOT_CRM}, False),
        ("crm", {"userInput": NONE, "serverToolResults": NONE}, True),
        ("web_search", {}, True),
        ("web_search", {"serverToolResults": NONE}, False),
        ("web_search", {"serverToolResults": NOT_CRM}, True),
        ("web_search", {"serverToolResults": ONLY_CRM}, False),
        ("web_search", {"clientToolResults": NONE}, True),
    ],
)
def test_a_url_counts_where_its_source_does(
    who: str, sources: dict[str, object], may: bool
) -> None:
    configured = ParseDict(sources, agent_pb2.WebFetchUrlSources())
    assert may_fetch(URL, [SEEN[who]], configured) is may


@pytest.mark.parametrize(
    ("url", "may"),
    [
        (URL, True),
        ("HTTPS://A.EXAMPLE:443/b?c=d#e", True),
        ("https://a.example/b?c=secret", False),
        ("https://a.example/b", False),
        ("https://a.example/b?c=d&e=secret", False),
        ("http://a.example/b?c=d", False),
        ("https://b.example/b?c=d", False),
        ("https://x@a.example/b?c=d", False),
        ("", False),
    ],
)
def test_only_the_very_url_that_was_seen_may_be_fetched(url: str, may: bool) -> None:
    assert may_fetch(url, [SEEN["user"]], agent_pb2.WebFetchUrlSources()) is may
    assert not may_fetch(url, [], agent_pb2.WebFetchUrlSources())


@pytest.mark.parametrize(
    ("url", "allowed", "blocked", "may"),
    [
        ("https://a.example/", [], [], True),
        ("https://a.example/", ["a.example"], [], True),
        ("https://x.a.example/", ["a.example"], [], True),
        ("https://xa.example/", ["a.example"], [], False),
        ("https://a.example.evil.example/", ["a.example"], [], False),
        ("https://example/", ["a.example"], [], False),
        ("https://a.example/", [], ["a.example"], False),
        ("https://x.A.example/", [], ["A.Example"], False),
        ("https://b.example/", [], ["a.example"], True),
        ("https://x.a.example/", ["a.example"], ["x.a.example"], False),
        ("https://b\u00fccher.example/", ["xn--bcher-kva.example"], [], True),
        ("https://xn--bcher-kva.example/", ["b\u00fccher.example"], [], True),
    ],
)
def test_a_domain_stands_for_itself_and_what_is_below(
    url: str, allowed: list[str], blocked: list[str], may: bool
) -> None:
    assert permits(parse(url), allowed, blocked) is may
