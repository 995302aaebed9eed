"""Decides whether a request fits the model's window. Pure.

Input and output share the window, and the round must be able to go on: so the output is reserved,
and one round more (an answer as long, and 15,000 tokens of results). In a small window neither
reserve takes more than a quarter, or nothing could be asked at all. A request that leaves no room
for another round is made smaller first; only one that leaves no room for its own answer is refused.

What the provider measured counts more than an estimate: the newest answer's usage says what its
request took, and only what came after it is estimated. It holds for exactly the request that was
sent, and everything in front of it must be unchanged.
"""

from dataclasses import dataclass
from typing import NamedTuple

from services.context.catalog import Model
from services.context.estimates import text_tokens

_RESULTS_TOKENS = 15_000
_CREDIBLE = 12
"""A measure that is so many times smaller than the estimate cannot be right."""

REQUEST_BYTES_MAX = 32_000_000
"""Larger bodies are refused by the provider whatever they hold."""


class Anchor(NamedTuple):
    """What the provider said of one answer."""

    snapshot_id: str
    """The request that it answered."""
    tokens: int
    """Tokens of request and answer together."""
    estimated: int
    """What the messages through the answer are estimated at."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The numbers of one decision, in tokens."""

    window_tokens: int
    output_tokens_max: int
    growth_tokens: int

    @property
    def input_tokens_limit(self) -> int:
        """The largest input that leaves room for the answer and one round more."""
        return self.window_tokens - self.output_tokens_max - self.growth_tokens

    @property
    def input_tokens_max(self) -> int:
        """The largest input that leaves room for the answer."""
        return self.window_tokens - self.output_tokens_max


@dataclass(frozen=True, slots=True)
class Size:
    """What a request is taken to be."""

    tokens: int
    source: str
    """`estimate`, `anchor` or `count`."""
    anchor_snapshot_id: str = ""
    anchor_tokens: int = 0


def limits_of(model: Model) -> Limits:
    """Reserves for a model."""
    quarter = model.window_tokens // 4
    output = min(model.output_tokens_max, quarter)
    return Limits(model.window_tokens, output, min(output + _RESULTS_TOKENS, quarter))


def size_of(
    around_bytes: int, text_bytes: int, media_tokens: int, anchor: Anchor | None = None
) -> Size:
    """Input tokens of a request: what stands around its messages, their text, their media.
    `anchor` only if all that it measured is unchanged."""
    estimated = text_tokens(around_bytes + text_bytes) + media_tokens
    message_tokens = text_tokens(text_bytes) + media_tokens
    if anchor is None or anchor.tokens * _CREDIBLE < anchor.estimated:
        return Size(estimated, "estimate")
    behind = message_tokens - anchor.estimated
    return Size(anchor.tokens + behind, "anchor", anchor.snapshot_id, anchor.tokens)


def counted(tokens: int) -> Size:
    """What the provider itself counted."""
    return Size(tokens, "count")


def has_room(size: Size, request_bytes: int, limits: Limits) -> bool:
    """Whether the request may be sent, and the round after it as well."""
    return size.tokens <= limits.input_tokens_limit and request_bytes <= REQUEST_BYTES_MAX


def fits(size: Size, request_bytes: int, limits: Limits) -> bool:
    """Whether the request may be sent at all."""
    return size.tokens <= limits.input_tokens_max and request_bytes <= REQUEST_BYTES_MAX
