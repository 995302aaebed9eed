"""Parts of the public API that are not served, so that they are refused by name.

A client library has methods for them; whoever calls one reads what is missing, not that a path is
unknown. `tools/sdk_parity.py` makes `docs/sdk-parity.md` from the same list.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Feature:
    """A part of the API: its name in the plural, and the paths below which it lives."""

    name: str
    prefixes: tuple[str, ...]
    planned: str = ""
    """Title of the piece of work that brings it; empty when none does."""


_TOOL_PLANE = "The tool plane: capabilities, permissions, native web, MCP, managed fetch, Files"

FEATURES = (
    Feature("files", ("/v1/files",), _TOOL_PLANE),
    Feature("session resources", ("/v1/sessions/{id}/resources",)),
    Feature("work queues of environments", ("/v1/environments/{id}/work",)),
    Feature("skills", ("/v1/skills",)),
    Feature("vaults", ("/v1/vaults",)),
    Feature("memory stores", ("/v1/memory_stores",)),
    Feature("deployments", ("/v1/deployments", "/v1/deployment_runs")),
    Feature("dreams", ("/v1/dreams",)),
    Feature("tunnels", ("/v1/tunnels",)),
    Feature("user profiles", ("/v1/user_profiles",)),
    Feature("webhooks", ("/v1/organizations/webhooks",)),
)


def feature_of(path: str) -> Feature | None:
    """The feature that a path belongs to; None for a path that nobody knows."""
    asked = path.split("/")
    for feature in FEATURES:
        if any(_begins(asked, prefix.split("/")) for prefix in feature.prefixes):
            return feature
    return None


def _begins(asked: Sequence[str], prefix: Sequence[str]) -> bool:
    if len(asked) < len(prefix):
        return False
    pairs = zip(asked, prefix, strict=False)
    return all(wanted in (found, "{id}") and found for found, wanted in pairs if wanted)
