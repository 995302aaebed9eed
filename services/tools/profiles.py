"""Capability profiles: what a configured provider endpoint can do. Pure data.

A profile is chosen by configuration, never guessed from a hostname, and pinned in each session.
Raise `version` whenever a profile's meaning changes.
"""

from collections.abc import Mapping
from types import MappingProxyType

from counterfoil.types.v1.capability_pb2 import CapabilityProfile

from foundation.storage import ConfigurationError

_ADAPTER = "messages"

PROFILES: Mapping[str, CapabilityProfile] = MappingProxyType(
    {
        profile.id: profile
        for profile in (
            CapabilityProfile(
                id="anthropic",
                version=1,
                adapter=_ADAPTER,
                native_web_search=True,
                native_web_fetch=True,
                native_citations=True,
                native_response_inclusion=True,
                preserves_unknown_content_blocks=True,
                automatic_prompt_caching=True,
                token_counting=True,
                provider_tool_versions={
                    "web_search": "web_search_20250305",
                    "web_fetch": "web_fetch_20250910",
                },
            ),
            CapabilityProfile(
                id="offline",
                version=3,
                adapter=_ADAPTER,
                preserves_unknown_content_blocks=True,
                automatic_prompt_caching=True,
                token_counting=True,
            ),
            # Promises nothing of an endpoint that nobody described. Blocks are stored and sent
            # back exactly in any case: leaving some out would break the history that it made.
            CapabilityProfile(
                id="conservative",
                version=1,
                adapter=_ADAPTER,
                preserves_unknown_content_blocks=True,
            ),
        )
    }
)


def choose(name: str, base_url: str, window_tokens: int = 0) -> CapabilityProfile:
    """The profile named by COUNTERFOIL_MODEL_PROFILE; without one, `offline` for the offline
    model (no base URL) and `conservative` for any other endpoint.

    `window_tokens` is what the deployment says of the window of this endpoint's models; 0 leaves it
    to what is known of a model. Raises ConfigurationError for an unknown name.
    """
    chosen = name or ("conservative" if base_url else "offline")
    profile = PROFILES.get(chosen)
    if profile is None:
        raise ConfigurationError(
            f"COUNTERFOIL_MODEL_PROFILE is {chosen!r}; it must be one of {', '.join(PROFILES)}"
        )
    pinned = CapabilityProfile(window_tokens=window_tokens)
    pinned.MergeFrom(profile)
    return pinned
