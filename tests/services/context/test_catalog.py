"""Windows of ids that several providers use: never larger than what the endpoint may have."""

import pytest
from genai_prices import data_snapshot

from services.context.catalog import lookup


@pytest.mark.parametrize(
    ("model", "window"),
    [
        # Everybody who lists it agrees.
        ("gpt-4o", 128_000),
        # Seven providers, three windows.
        ("Qwen/Qwen3-32B", 32_768),
        # Two resellers disagree, and the maker does not list it under this name.
        ("anthropic/claude-sonnet-4.5", 200_000),
        # The maker's own word counts, whatever a reseller cuts it to.
        ("claude-opus-4.8", 1_000_000),
        # Dated and written in capitals, as some configurations have them.
        ("claude-haiku-4-5-20251001", 200_000),
        ("Claude-Sonnet-4-5", 200_000),
        # Listed without a window by everybody, and not listed at all.
        ("text-embedding-ada-002:custom", 100_000),
        ("", 100_000),
    ],
)
def test_an_ambiguous_id_has_the_smallest_window_that_is_listed(model: str, window: int) -> None:
    assert lookup(model).window_tokens == window


def test_no_provider_but_the_maker_knows_a_smaller_window() -> None:
    providers = data_snapshot.get_snapshot().providers
    ids = {model.id for provider in providers for model in provider.models}
    assert len(ids) > 1000
    for model_id in sorted(ids)[::20]:
        found = [p.find_model(model_id, all_providers=providers) for p in providers]
        listed = {
            provider.id: model.context_window
            for provider, model in zip(providers, found, strict=True)
            if model is not None and model.context_window
        }
        smallest = min(listed.values(), default=100_000)
        if not model_id.startswith("offline"):
            assert lookup(model_id).window_tokens == listed.get("anthropic", smallest)
