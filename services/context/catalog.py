"""How much a model can hold and write.

Windows come from `genai-prices`; it knows no output limits, so those are ours, by family. What is
unknown gets numbers that nearly every model of today can honour: too small costs an early refusal,
too large costs a request that the provider refuses.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

import genai_prices
from genai_prices import data_snapshot

VERSION = f"genai-prices {genai_prices.__version__}"
"""What the windows were read from; pinned in snapshots."""

_UNKNOWN_WINDOW_TOKENS = 100_000
_OFFLINE_WINDOW_TOKENS = 200_000
_UNKNOWN_OUTPUT_TOKENS = 8_192
# First match wins. Later Claude models write at least this much.
_OUTPUT_TOKENS = (
    (re.compile(r"claude-(v?[12]([.-]|$)|instant|3-(haiku|sonnet|opus))"), 4_096),
    (re.compile(r"claude-3[.-]5-"), 8_192),
    (re.compile(r"claude-"), 32_000),
)


@dataclass(frozen=True, slots=True)
class Model:
    """What is known of a model."""

    window_tokens: int
    output_tokens_max: int


@lru_cache(maxsize=1024)
def lookup(model_id: str) -> Model:
    """The model with this id, exact or dated; conservative numbers for an unknown one."""
    if model_id == "offline" or model_id.startswith(("offline/", "offline-")):
        return Model(_OFFLINE_WINDOW_TOKENS, _UNKNOWN_OUTPUT_TOKENS)
    return Model(_window(model_id), _output(model_id))


def _window(model_id: str) -> int:
    snapshot = data_snapshot.get_snapshot()
    # The Messages API's own provider first: others list some of its ids with other windows.
    for provider_id in ("anthropic", None):
        try:
            _, found = snapshot.find_provider_model(model_id, None, provider_id, None)
        except LookupError:
            continue
        if found.context_window:
            return found.context_window
    return _UNKNOWN_WINDOW_TOKENS


def _output(model_id: str) -> int:
    for pattern, tokens in _OUTPUT_TOKENS:
        if pattern.match(model_id.lower()):
            return tokens
    return _UNKNOWN_OUTPUT_TOKENS
