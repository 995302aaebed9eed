"""Remembers for a few seconds who a workspace key belongs to, so that the hot path asks nobody."""

import hashlib
import time
from collections import OrderedDict

from foundation.rpc.admission import Authenticate, Principal

SECONDS = 5.0
"""How long a revoked key may still work."""

_ENTRIES_MAX = 4096


class CachedAuthenticator:
    """An `Authenticate` in front of another. Keeps digests of keys, never keys; does not remember
    keys that nobody issued, so that guessing cannot push valid ones out."""

    def __init__(self, ask: Authenticate) -> None:
        self._ask = ask
        self._known: OrderedDict[bytes, tuple[float, Principal]] = OrderedDict()

    async def __call__(self, api_key: str) -> Principal | None:
        """Who the key belongs to; None for one that nobody issued."""
        name = hashlib.sha256(api_key.encode()).digest()
        found = self._known.get(name)
        if found is not None and time.monotonic() - found[0] < SECONDS:
            return found[1]
        principal = await self._ask(api_key)
        if principal is None:
            self._known.pop(name, None)
            return None
        self._known[name] = (time.monotonic(), principal)
        self._known.move_to_end(name)
        while len(self._known) > _ENTRIES_MAX:
            self._known.popitem(last=False)
        return principal
