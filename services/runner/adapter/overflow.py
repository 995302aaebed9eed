"""Whether a provider says that a request is too large for its model. Pure.

The Messages API has a status and a type for a body that is too large, but says in words that a
prompt is over the window. Endpoints that speak it for other models pass their own words on. What
concerns one image of a request is meant too: less of it is what helps.
"""

import re

_WORDS = re.compile(
    # The Messages API, and what serves its models elsewhere.
    r"(prompt|input)( \w+)? (is|was) too long"
    r"|exceed(s|ed)? (the |your )?(model'?s? )?(maximum |available )?context"
    r"|context (window|length|size|limit) (is |was )?(exceed|overflow)"
    r"|context[ _](window|length|size)[ _](is )?exceed"
    r"|image exceeds [\d.]+ ?MB"
    r"|image dimensions exceed"
    r"|too (much media|many images|many total text bytes)"
    r"|maximum of \d+ PDF pages"
    # Others.
    r"|(maximum|max|model) (model |prompt |input )?(context|prompt|sequence|input|model)[ _]length"
    r"|(larger|longer) than the (maximum )?(model|context)"
    r"|exceed(s|ed)? (the )?(model'?s? )?(max(imum)?|token) "
    r"(number of (input )?tokens|(input |prompt )?length|limit|allowed input)"
    r"|exceed(s|ed)? model token limit"
    r"|too large for model with \d+ maximum"
    r"|reduce the length of the (messages|prompt|input)"
    r"|too many (input )?tokens"
    r"|max_new_tokens. must be <=",
    re.IGNORECASE,
)
_OUTPUT = re.compile(r"maximum allowed number of output tokens|\bper[ -](minute|day)\b", re.I)
"""Words about another limit, whatever else stands there."""

TYPES = frozenset(("request_too_large", "exceed_context_size_error", "context_length_exceeded"))
"""Error types and codes that say it."""


def says_too_large(text: str) -> bool:
    """Whether the text of an error that is no passing one means the size of the request."""
    return _WORDS.search(text) is not None and _OUTPUT.search(text) is None
