"""Which URLs a model may fetch: those that others put into its context. Pure.

A model that could fetch any URL could be talked into writing secrets into one. So a URL must have
appeared before: in what the user wrote, or in a tool's result, as far as `url_sources` says.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

from counterfoil.registry.v1 import agent_pb2

from foundation.egress.errors import EgressError
from foundation.egress.targets import parse

_URL = re.compile(r"https?://[^\s<>\"'`{}|\\^\x00-\x1f\x7f]+", re.IGNORECASE)
_BEHIND = ".,;:!?*_~"
_PAIRS = {")": "(", "]": "["}
_URL_CHARS_MAX = 2048


class Origin(Enum):
    """Who put a text into the context."""

    USER = auto()
    CLIENT_TOOL = auto()
    """A custom tool's result, or that of a built-in on a worker."""
    SERVER_TOOL = auto()
    """A result of web_search or web_fetch."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A text of the context, and where it came from."""

    origin: Origin
    text: str
    tool: str = ""
    """The tool's name, for results."""


def may_fetch(url: str, seen: Iterable[Seen], sources: agent_pb2.WebFetchUrlSources) -> bool:
    """Tell whether the URL stands in a text that `sources` lets contribute.

    URLs are compared in their normal form, with their query and without their fragment: one that
    differs in a single character is another URL. False for what is no fetchable URL.
    """
    wanted = _normal(url)
    if wanted is None:
        return False
    texts = (one.text for one in seen if contributes(one, sources))
    return any(wanted == found for text in texts for found in urls_in(text))


def contributes(seen: Seen, sources: agent_pb2.WebFetchUrlSources) -> bool:
    """Tell whether URLs in this text may be fetched. A source that is not set allows all."""
    match seen.origin:
        case Origin.USER:
            return sources.user_input.type != agent_pb2.URL_SOURCE_TYPE_NONE
        case Origin.CLIENT_TOOL:
            return _passes(seen.tool, sources.client_tool_results)
        case Origin.SERVER_TOOL:
            return _passes(seen.tool, sources.server_tool_results)


def urls_in(text: str) -> Iterator[str]:
    """The URLs of a text in their normal form, without the punctuation of the sentence around."""
    for match in _URL.finditer(text):
        found = _normal(_trimmed(match[0]))
        if found is not None:
            yield found


def _passes(tool: str, chosen: agent_pb2.UrlSourceFilter) -> bool:
    names = {reference.name for reference in chosen.tools}
    match chosen.type:
        case agent_pb2.URL_SOURCE_TYPE_NONE:
            return False
        case agent_pb2.URL_SOURCE_TYPE_ONLY:
            return tool in names
        case agent_pb2.URL_SOURCE_TYPE_EXCEPT:
            return tool not in names
        case _:
            return True


def _trimmed(url: str) -> str:
    """Without what belongs to the sentence: `(see https://a.example/b).`"""
    while url:
        last = url[-1]
        is_lonely = last in _PAIRS and url.count(last) > url.count(_PAIRS[last])
        if last not in _BEHIND and not is_lonely:
            break
        url = url[:-1]
    return url


def _normal(url: str) -> str | None:
    if len(url) > _URL_CHARS_MAX:
        return None
    try:
        return str(parse(url))
    except EgressError:
        return None
