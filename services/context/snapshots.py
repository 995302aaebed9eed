"""Stores snapshots and their parts, each in one commit, and builds stored requests again."""

import os

from counterfoil.context.v1 import context_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1.reference_pb2 import Head

from foundation.errors import Failure, deleted, fenced
from foundation.storage import Database, SealRing
from services.context import recipe, store
from services.context.cache import Warm
from services.context.materializer import request_tail
from services.context.parts import Parts
from services.context.recipe import Frame, Recipe, ThreadKey

_PART_KEY_BYTES = 32


class StaleLosses(Exception):
    """The thread has other records of transitions and checkpoints by now: read them first."""


class Snapshots:
    """Snapshots of all threads."""

    def __init__(self, db: Database, ring: SealRing) -> None:
        self._db = db
        self._ring = ring
        self._parts = Parts(db, ring)
        self._part_keys: dict[str, bytes] = {}

    async def addresses(self, key: ThreadKey, frame: Frame, tail: bytes = b"") -> tuple[bytes, ...]:
        """Where the parts of a request are stored."""
        part_key = await self._part_key(key[0])
        return recipe.addresses_of(part_key, *frame.parts, *([tail] if tail else []))

    async def address(self, key: ThreadKey, part: bytes) -> bytes:
        """Where one part is stored."""
        return recipe.addresses_of(await self._part_key(key[0]), part)[0]

    async def part(self, key: ThreadKey, address: bytes) -> bytes:
        """A stored part. Raises CORRUPT when it is missing."""
        return await self._parts.one(key[0], address)

    async def put(
        self,
        request: pb.PrepareRequestRequest,
        key: ThreadKey,
        id: str,
        made: Recipe,
        parts: tuple[bytes, ...],
        warm: Warm,
    ) -> bool:
        """Store a snapshot in one commit; False when its id is taken.

        `parts` are those of the frame, and the tail's when it has a part. Raises StaleLosses, and
        FENCED or DELETED.
        """
        epoch, attempt = request.fence.epoch, request.attempt
        bound = recipe.identity(key, id, request.turn_id, request.round, attempt)
        addresses = [made.request_head, made.pins, *([made.tail] if made.tail else [])]
        row = store.NewSnapshot(
            *key,
            epoch,
            id,
            request.turn_id,
            request.round,
            attempt.epoch,
            attempt.number,
            self._ring.seal(recipe.encode(made), *bound),
            addresses,
            made.losses_version,
        )
        if warm.stored and not made.tail:
            found = await store.put_snapshot(self._db, row)
            if not found["admitted"]:
                raise await self._refused(key, epoch)
            if found["complete"]:
                stored: bool = found["stored"]
                return stored
        sealed = [
            self._ring.seal(body, *recipe.part_identity(key[0], address))
            for address, body in zip(addresses, parts, strict=True)
        ]
        found = await store.put_snapshot_with_parts(self._db, row, sealed)
        if not found["admitted"]:
            raise await self._refused(key, epoch)
        warm.stored = (made.request_head, made.pins)
        created: bool = found["stored"]
        return created

    async def find(self, key: ThreadKey, id: str) -> Recipe | None:
        """A stored recipe."""
        row = await store.snapshot(self._db, key, id)
        return None if row is None else recipe.open_row(self._ring, key, row)

    async def of_attempt(self, key: ThreadKey, id: str, head: Head) -> Recipe:
        """An attempt's stored recipe, which is never replaced and must be of the same head."""
        stored = await self.find(key, id)
        if stored is None:
            raise deleted(key[2])
        if (stored.head_seq, stored.head_digest) != (head.seq, head.digest):
            raise Failure(
                reasons.ERROR_REASON_HEAD_MISMATCH,
                f"the attempt has a snapshot of transcript head {stored.head_seq}",
                metadata={"seq": str(stored.head_seq)},
            )
        return stored

    async def built(self, key: ThreadKey, id: str, stored: Recipe, warm: Warm) -> bytes:
        """The bytes of a stored recipe, from history at its head with its losses. Raises
        CORRUPT."""
        head = await self._parts.one(key[0], stored.request_head)
        tail = await self._parts.one(key[0], stored.tail) if stored.tail else None
        return build(id, stored, warm, head, tail)

    async def admit(self, key: ThreadKey, epoch: int) -> int:
        """The highest epoch that the thread has seen. Raises FENCED or DELETED unless a writer with
        this epoch may write."""
        epoch_max = await store.epoch_max(self._db, key)
        if epoch_max == store.EPOCH_INFINITE:
            raise deleted(key[2])
        if epoch < epoch_max:
            raise fenced(epoch, epoch_max)
        return epoch_max

    async def _refused(self, key: ThreadKey, epoch: int) -> StaleLosses:
        await self.admit(key, epoch)
        return StaleLosses()

    async def _part_key(self, workspace_id: str) -> bytes:
        """The key of a workspace's part addresses, created on first use."""
        if workspace_id not in self._part_keys:
            bound = ("context.part_keys", "key_sealed", workspace_id)
            sealed = await store.part_key(self._db, workspace_id)
            if sealed is None:
                offered = self._ring.seal(os.urandom(_PART_KEY_BYTES), *bound)
                await store.offer_part_key(self._db, workspace_id, offered)
                sealed = await store.part_key(self._db, workspace_id)
                assert sealed is not None
            self._part_keys[workspace_id] = self._ring.open(sealed, *bound)
        return self._part_keys[workspace_id]


def build(id: str, stored: Recipe, warm: Warm, head: bytes, tail: bytes | None) -> bytes:
    """The bytes of a stored recipe; `tail` is None for the usual one. Raises CORRUPT."""
    usual = request_tail(stream=stored.stream)
    body, digest = warm.request(head, usual if tail is None else tail)
    if digest != stored.request_digest:
        raise Failure(reasons.ERROR_REASON_CORRUPT, f"snapshot {id} does not match its digest")
    return body
