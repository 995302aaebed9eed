"""What is stored of an entry and of a head, and how both prove themselves.

The chain's header covers every open column of an entry, its commitment the sealed one; the columns
of a head are repeated inside its seal. So no byte of either can change unnoticed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from counterfoil.types.v1.reference_pb2 import ThreadRef

from foundation.digests import SALT_BYTES, Chain, commitment, frame, new_salt
from foundation.storage import SealBroken, SealRing

_DOMAIN = "counterfoil.transcript.v1"
EPOCH_INFINITE = 2**63 - 1
"""`epoch_max` of a tombstone."""


class ThreadKey(NamedTuple):
    """A thread's place; also the first three arguments of every statement."""

    workspace_id: str
    session_id: str
    thread_id: str


def key_of(thread: ThreadRef) -> ThreadKey:
    """The key of a reference."""
    return ThreadKey(thread.workspace_id, thread.session_id, thread.thread_id)


@dataclass(frozen=True, slots=True)
class StoredHead:
    """A row of `heads` without its seal. `digest` is empty while `seq` is 0."""

    seq: int
    digest: bytes
    epoch_max: int
    is_deleted: bool


EMPTY_HEAD = StoredHead(0, b"", 0, False)


class StoredEntry(NamedTuple):
    """A row of `entries`: its columns, as every statement has them first.

    `content` is sealed, None when erased; the attempt is 0, 0 if not set.
    """

    seq: int
    entry_id: str
    kind: int
    turn_id: str
    round: int
    attempt_epoch: int
    attempt_number: int
    epoch: int
    content: bytes | None
    commitment: bytes
    digest: bytes

    def header(self) -> bytes:
        """Every open column but the digests, framed."""
        return frame(
            b"%d" % self.seq,
            self.entry_id.encode(),
            b"%d" % self.kind,
            self.turn_id.encode(),
            b"%d" % self.round,
            b"%d" % self.attempt_epoch,
            b"%d" % self.attempt_number,
            b"%d" % self.epoch,
        )

    def digest_behind(
        self, key: ThreadKey, previous: bytes, committed: bytes | None = None
    ) -> bytes:
        """The digest that the entry must have behind `previous` (and with this commitment)."""
        return _chain(key).next(
            previous, self.header(), self.commitment if committed is None else committed
        )


@lru_cache(maxsize=1024)
def _chain(key: ThreadKey) -> Chain:
    return Chain(_DOMAIN, "/".join(key))


def seal_content(ring: SealRing, key: ThreadKey, seq: int, body: bytes) -> tuple[bytes, bytes]:
    """The sealed column for serialized content, and its commitment under a fresh salt."""
    salt = new_salt()
    return ring.seal(salt + body, "entries", *key, seq), commitment(salt, body)


def content_opener(ring: SealRing, key: ThreadKey) -> Callable[[int, bytes], tuple[bytes, bytes]]:
    """Opens sealed columns of one thread by sequence: serialized content and the commitment to it;
    raises SealBroken."""
    opener = ring.opener("entries", *key)

    def opened(seq: int, sealed: bytes) -> tuple[bytes, bytes]:
        salted = opener.open(sealed, seq)
        salt, body = salted[:SALT_BYTES], salted[SALT_BYTES:]
        return body, commitment(salt, body)

    return opened


def seal_provider_id(
    ring: SealRing, key: ThreadKey, seq: int, block_index: int, provider_id: str
) -> bytes:
    """The sealed column of a provider's id in the id map."""
    return ring.seal(provider_id.encode(), "id_map", *key, seq, block_index)


def open_provider_id(
    ring: SealRing, key: ThreadKey, seq: int, block_index: int, sealed: bytes
) -> str:
    """A provider's id; raises SealBroken."""
    return ring.open(sealed, "id_map", *key, seq, block_index).decode()


def seal_redaction(ring: SealRing, key: ThreadKey, seq: int, committed: bytes) -> bytes:
    """What says that the content with this commitment was redacted."""
    return ring.seal(committed, "redactions", *key, seq)


def is_redacted(ring: SealRing, key: ThreadKey, entry: StoredEntry, seal: bytes | None) -> bool:
    """Whether an entry lost its content to a redaction."""
    if seal is None or entry.content is not None:
        return False
    try:
        return ring.open(seal, "redactions", *key, entry.seq) == entry.commitment
    except SealBroken:
        return False


def seal_head(ring: SealRing, key: ThreadKey, head: StoredHead) -> bytes:
    """The seal that makes a head row trustworthy."""
    return ring.seal(_head_bytes(head), "heads", *key)


def head_holds(ring: SealRing, key: ThreadKey, head: StoredHead, seal: bytes) -> bool:
    """Whether nobody without the key changed the head row."""
    try:
        return ring.open(seal, "heads", *key) == _head_bytes(head)
    except SealBroken:
        return False


def _head_bytes(head: StoredHead) -> bytes:
    return frame(
        b"%d" % head.seq, head.digest, b"%d" % head.epoch_max, b"%d" % int(head.is_deleted)
    )
