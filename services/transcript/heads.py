"""The head row of a thread under its lock."""

from foundation.storage import Connection, SealRing
from services.transcript import store
from services.transcript.chain import EMPTY_HEAD, StoredHead, ThreadKey, seal_head
from services.transcript.reading import check_head


async def locked(
    connection: Connection, ring: SealRing, key: ThreadKey, *, create: bool, check: bool = True
) -> StoredHead:
    """The head, locked until the transaction ends; the empty one where there is no row and none
    is to be created. Raises CORRUPT unless it is as it was written."""
    row = await store.lock_head(connection, key)
    if row is None and create:
        await store.create_head(connection, key, seal_head(ring, key, EMPTY_HEAD))
        row = await store.lock_head(connection, key)
    if row is None:
        return EMPTY_HEAD
    head = store.head_of(row)
    if check:
        check_head(ring, key, head, row["seal"])
    return head


async def raise_epoch(
    connection: Connection, ring: SealRing, key: ThreadKey, head: StoredHead, epoch: int
) -> None:
    """Refuse writers with a lower epoch from now on."""
    seal = seal_head(ring, key, StoredHead(head.seq, head.digest, epoch, False))
    await store.set_epoch(connection, key, epoch, False, seal)
