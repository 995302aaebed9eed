"""Reading projections (version 1): what the model is shown of an outcome, and what the public is.

The journal writes them; the context service and the runner read them through this module, so that
model and public see the same words.
"""

import json
from dataclasses import dataclass

from foundation.outcomes import failure_text


@dataclass(frozen=True, slots=True)
class Shown:
    """An outcome as texts, in order; no text for an empty result."""

    texts: tuple[str, ...]
    is_error: bool


def read(body: bytes) -> Shown:
    """What a projection shows. Raises ValueError for one that this version does not know."""
    projection = json.loads(body)
    if projection.get("v") != 1:
        raise ValueError(f"projection version {projection.get('v')} is unknown")
    match projection["kind"]:
        case "content":
            texts = tuple(str(part["text"]) for part in projection["parts"])
            return Shown(texts, bool(projection.get("is_error", False)))
        case "failure":
            return Shown((failure_text(str(projection["code"])),), is_error=True)
        case kind:
            raise ValueError(f"projection kind {kind} is unknown")
