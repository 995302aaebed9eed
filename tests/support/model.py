"""The offline model as tests of the whole system see it: its gates and its records."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import httpx2


@dataclass(frozen=True)
class Asked:
    """One request that the provider got: the exact body, and how it ended."""

    record: dict[str, Any]
    body: bytes

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages, decoded."""
        return json.loads(self.body)["messages"]

    @property
    def region(self) -> bytes:
        """The bytes of `messages` without the closing bracket: what a later request begins with.

        The messages are the last array of messages in the body by construction of `region_bytes`.
        """
        at = self.body.index(b'"messages":') + len(b'"messages":')
        region = self.body[at : at + self.record["region_bytes"]]
        assert json.loads(region) == self.messages
        return region[:-1]


_WAIT_S = 60
"""Two leases in a row may have to run out before a turn goes on: about 18 s."""


class Model:
    """A running offline model; belongs to no event loop."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def reset(self) -> None:
        """Forgets gates and records."""
        await self._post("/control/reset")

    async def window(self, tokens: int) -> None:
        """From now on every model has this window, until a reset."""
        await self._post(f"/control/window?tokens={tokens}")

    async def release(self, gate: str) -> None:
        """Opens a gate."""
        await self._post(f"/control/release/{gate}")

    async def held(self, gate: str, number: int = 1) -> None:
        """Returns when `number` requests wait at a gate."""
        query = f"?wait={number}&timeout_s={_WAIT_S}"
        found = await self._get(f"/control/holds/{gate}{query}")
        assert found["waiting"] >= number, found

    async def asked(
        self, number: int = 0, *, finished: bool = False, counts: bool = False
    ) -> list[Asked]:
        """What the provider was to answer so far, once `number` requests have come (ended); with
        `counts` also what it was only to count."""
        query = f"?wait={number}&finished={int(finished)}&timeout_s={_WAIT_S}"
        found = (await self._get(f"/control/requests{query}"))["requests"]
        records = [one for one in found if counts or not one["path"].endswith("/count_tokens")]
        async with self._client() as client:
            bodies = [
                (await client.get(f"/control/requests/{record['seq']}")).raise_for_status().content
                for record in records
            ]
        return [Asked(*pair) for pair in zip(records, bodies, strict=True)]

    def _client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=self.url, timeout=_WAIT_S + 10)

    async def _post(self, path: str) -> Any:
        async with self._client() as client:
            return (await client.post(path)).raise_for_status().json()

    async def _get(self, path: str) -> Any:
        async with self._client() as client:
            return (await client.get(path)).raise_for_status().json()


def script(*steps: Any) -> str:
    """A user text that tells the offline model what to answer."""
    return "offline-script: " + json.dumps(steps)


def use(name: str, **input: Any) -> dict[str, Any]:
    """A tool use of a scripted answer."""
    return {"type": "tool_use", "name": name, "input": input}


def text(value: str) -> dict[str, Any]:
    """A text block of a scripted answer."""
    return {"type": "text", "text": value}


def begins_with(asked: Sequence[Asked]) -> None:
    """Each request's messages begin with the bytes of the one before."""
    for before, after in pairwise(asked):
        assert after.region.startswith(before.region), (before.region, after.region)
