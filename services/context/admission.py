"""Decides whether a request fits the model's window. Pure.

Input and output share the window, and the round must be able to go on: so the output is reserved,
and one round more (an answer as long, and 15,000 tokens of results). In a small window neither
reserve takes more than a quarter, or nothing could be asked at all.
"""

from dataclasses import dataclass

from services.context.catalog import Model

_RESULTS_TOKENS = 15_000
_BYTES_PER_TOKEN = 3


@dataclass(frozen=True, slots=True)
class Limits:
    """The numbers of one decision, in tokens."""

    window_tokens: int
    output_tokens_max: int
    growth_tokens: int

    @property
    def input_tokens_limit(self) -> int:
        """The largest input that is admitted."""
        return self.window_tokens - self.output_tokens_max - self.growth_tokens


def limits_of(model: Model) -> Limits:
    """Reserves for a model."""
    quarter = model.window_tokens // 4
    output = min(model.output_tokens_max, quarter)
    return Limits(model.window_tokens, output, min(output + _RESULTS_TOKENS, quarter))


def estimate(request_bytes: int) -> int:
    """Input tokens of a request, rounded up: a token is hardly ever shorter than three bytes."""
    return -(-request_bytes // _BYTES_PER_TOKEN)


def fits(input_tokens: int, limits: Limits) -> bool:
    """Whether a request of this size may be sent."""
    return input_tokens <= limits.input_tokens_limit
