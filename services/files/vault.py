"""Bytes in the object store: sealed, and checked when they come back."""

import asyncio
import hashlib
import hmac
import os
import re

from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation import failpoints
from foundation.errors import Failure
from foundation.objects import Missing, ObjectStore
from foundation.storage import Database, SealBroken, SealRing
from services.files import store

_ADDRESS_KEY_BYTES = 32
_PREFIX = "blobs/"
_KEY = re.compile(r"^blobs/([^/]+)/([^/]+)$")


class Vault:
    """Blobs of all workspaces. Raises what `ObjectStore` raises."""

    def __init__(self, db: Database, ring: SealRing, objects: ObjectStore) -> None:
        self._db = db
        self._ring = ring
        self._objects = objects
        self._address_keys: dict[str, bytes] = {}

    async def address_of(self, workspace_id: str, sha256: bytes) -> bytes:
        """The address of a content in its workspace; worthless without the workspace's key."""
        key = self._address_keys.get(workspace_id)
        if key is None:
            key = self._address_keys[workspace_id] = await self._address_key(workspace_id)
        return hmac.digest(key, sha256, hashlib.sha256)[: store.ADDRESS_BYTES]

    async def put(self, workspace_id: str, blob_id: str, body: bytes) -> None:
        """Store a blob's bytes; durable when this returns."""
        # Away from the loop: 32 MiB take a while.
        sealed = await asyncio.to_thread(self._ring.seal, body, *_identity(workspace_id, blob_id))
        await failpoints.hit("files.put.before")
        await self._objects.put(_key(workspace_id, blob_id), sealed)
        await failpoints.hit("files.put.after")

    async def get(self, workspace_id: str, blob_id: str, sha256: bytes) -> bytes:
        """A blob's bytes. Raises CORRUPT when they are not the ones that were stored."""
        try:
            sealed = await self._objects.get(_key(workspace_id, blob_id))
            return await asyncio.to_thread(self._opened, sealed, workspace_id, blob_id, sha256)
        except Missing:
            raise _corrupt("are not in the object store") from None
        except SealBroken:
            raise _corrupt("were changed") from None

    async def remove(self, workspace_id: str, blob_id: str) -> None:
        """Remove a blob's bytes, if they are there."""
        await failpoints.hit("files.remove.before")
        await self._objects.delete(_key(workspace_id, blob_id))
        await failpoints.hit("files.remove.after")

    async def inventory(self, after: str, limit: int) -> dict[str, tuple[str, str]]:
        """A page of what the store holds behind a key: key to workspace and blob id, in order."""
        keys = await self._objects.keys(_PREFIX, after, limit)
        return {key: (match[1], match[2]) for key in keys if (match := _KEY.match(key))}

    def _opened(self, sealed: bytes, workspace_id: str, blob_id: str, sha256: bytes) -> bytes:
        body = self._ring.open(sealed, *_identity(workspace_id, blob_id))
        if hashlib.sha256(body).digest() != sha256:
            raise _corrupt("have another digest")
        return body

    async def _address_key(self, workspace_id: str) -> bytes:
        """The key of a workspace's addresses, created on first use."""
        bound = ("files.address_keys", "key_sealed", workspace_id)
        sealed = await store.address_key(self._db, workspace_id)
        if sealed is None:
            offered = self._ring.seal(os.urandom(_ADDRESS_KEY_BYTES), *bound)
            await store.offer_address_key(self._db, workspace_id, offered)
            sealed = await store.address_key(self._db, workspace_id)
            assert sealed is not None
        return self._ring.open(sealed, *bound)


def _key(workspace_id: str, blob_id: str) -> str:
    return f"{_PREFIX}{workspace_id}/{blob_id}"


def _identity(workspace_id: str, blob_id: str) -> tuple[str, ...]:
    return ("files.blobs", "bytes", workspace_id, blob_id)


def _corrupt(what: str) -> Failure:
    return Failure(reasons.ERROR_REASON_CORRUPT, f"the artifact's bytes {what}")
