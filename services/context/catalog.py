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

_OWN = "anthropic"
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
def lookup(model_id: str, window_tokens: int = 0) -> Model:
    """The model with this id, exact or dated; conservative numbers for an unknown one.

    `window_tokens` is the deployment's word for the endpoint, which counts more; 0 for none.
    """
    if window_tokens:
        return Model(window_tokens, lookup(model_id).output_tokens_max)
    if model_id == "offline" or model_id.startswith(("offline/", "offline-")):
        return Model(_OFFLINE_WINDOW_TOKENS, _UNKNOWN_OUTPUT_TOKENS)
    return Model(_window(model_id), _output(model_id))


def _window(model_id: str) -> int:
    """The window of the Messages API's own provider; else the smallest that anyone lists, because
    nothing says which of them serves the endpoint."""
    listed = _listed(model_id)
    return listed.get(_OWN) or min(listed.values(), default=_UNKNOWN_WINDOW_TOKENS)


def _listed(model_id: str) -> dict[str, int]:
    """The windows that providers list for this id, by provider."""
    snapshot = data_snapshot.get_snapshot()
    found = {
        provider.id: provider.find_model(model_id, all_providers=snapshot.providers)
        for provider in snapshot.providers
    }
    return {
        provider_id: model.context_window
        for provider_id, model in found.items()
        if model is not None and model.context_window
    }


def _output(model_id: str) -> int:
    for pattern, tokens in _OUTPUT_TOKENS:
        if pattern.match(model_id.lower()):
            return tokens
    return _UNKNOWN_OUTPUT_TOKENS
