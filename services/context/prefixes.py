"""Message bytes that outlive a process: a thread's history through some head, in one sealed row.

A process that does not know a thread reads that row and then only the entries behind it, instead of
opening and checking every entry one by one. The row is a copy of what the reducer made, never a
truth of its own: it is bound to its thread, its transcript head and the materializer's version, the
entries behind it must continue at exactly that head, and whatever does not fit is as if it were not
there. What is asked to prove something (`Rebuild`, the transcript's verification) never reads it.

Transitions and a checkpoint decide as well what it says: it is bound to their version, too.
"""

import asyncio

import msgspec
import structlog
from counterfoil.types.v1.reference_pb2 import ThreadRef

from foundation import telemetry
from foundation.storage import Database, SealBroken, SealRing
from foundation.storage.errors import CommitUnknown, Unavailable
from services.context import materializer, store
from services.context.admission import Anchor
from services.context.cache import Messages, Warm
from services.context.keeping import ENTRIES_MIN, is_due
from services.context.losses import Losses
from services.context.recipe import ThreadKey, thread_key

_log = structlog.get_logger("counterfoil.context")


class Prefixes:
    """Kept prefixes of all threads."""

    def __init__(self, db: Database, ring: SealRing) -> None:
        self._db = db
        self._ring = ring
        self._keeping: set[asyncio.Task[None]] = set()

    async def find(self, thread: ThreadRef, seq_max: int, losses: Losses) -> Warm | None:
        """What is kept of a thread through `seq_max` or before, with these losses; None when that
        is nothing."""
        if seq_max < ENTRIES_MIN:
            return None
        key = thread_key(thread)
        row = await store.prefix(self._db, key, materializer.VERSION, losses.version, seq_max)
        if row is None:
            return None
        seq, digest = row["seq"], row["digest"]
        try:
            bound = _identity(key, seq, digest, losses.version)
            opened = self._ring.open(row["messages_sealed"], *bound)
        except SealBroken as error:
            _log.warning("kept history is not used", thread=key[2], error=str(error))
            return None
        kept = _KEPT.decode(opened)
        anchor = None if kept.anchor is None else Anchor(*kept.anchor)
        messages = Messages(
            kept.joined, kept.media_bytes, kept.media_tokens, kept.image_bytes, anchor
        )
        return Warm(seq, digest, messages, losses)

    def keep_soon(self, key: ThreadKey, epoch: int, warm: Warm) -> None:
        """Keep a thread as it is, when that is due: later, and not if the thread has been fenced
        by then. It is only a copy, so nobody waits for it and nothing depends on it."""
        if not is_due(warm):
            return
        warm.kept_seq = warm.seq
        task = telemetry.detached(self._keep(key, epoch, warm), "context-prefix")
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)

    async def _keep(self, key: ThreadKey, epoch: int, warm: Warm) -> None:
        if warm.open:
            return  # it went on meanwhile
        seq, digest = warm.seq, warm.digest
        version = warm.losses.version
        kept = msgspec.msgpack.encode(_Kept(*warm.messages()))
        sealed = self._ring.seal(kept, *_identity(key, seq, digest, version))
        row = (seq, digest, materializer.VERSION, version, sealed)
        try:
            await store.keep_prefix(self._db, key, epoch, *row)
        except (Unavailable, CommitUnknown) as error:
            _log.warning("history was not kept", thread=key[2], error=str(error))


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """What a row holds; see `Messages`."""

    joined: bytes
    media_bytes: int
    media_tokens: int
    image_bytes: int
    anchor: tuple[str, int, int] | None


_KEPT = msgspec.msgpack.Decoder(_Kept)


def _identity(
    key: ThreadKey, seq: int, digest: bytes, losses_version: int
) -> tuple[str | int, ...]:
    """What a kept prefix is bound to."""
    where = ("context.prefixes", "messages_sealed", *key)
    return (*where, seq, digest.hex(), materializer.VERSION, losses_version)
