"""What the log's chain hashes: every column of a row, through its header or its commitment."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from counterfoil.types.v1.reference_pb2 import Head

from foundation.digests import SALT_BYTES, Chain, commitment, frame
from foundation.storage import SealBroken, Sealer, SealRing

_DOMAIN = "counterfoil.ledger.log.v1"
_TABLE = "ledger.log"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Writer(NamedTuple):
    """What every new entry of one session's log needs."""

    chain: Chain
    sealer: Sealer

    def seal(self, salt: bytes, body: bytes, position: int, event_id: str) -> bytes:
        """The sealed column: salt and body together, so that erasing one erases the other."""
        return self.sealer.seal(salt + body, position, event_id)


@lru_cache(4096)
def writer(ring: SealRing, workspace_id: str, session_id: str) -> Writer:
    """The writer of one session's log."""
    sealer = ring.sealer(_TABLE, workspace_id, session_id)
    return Writer(chain(workspace_id, session_id), sealer)


def chain(workspace_id: str, session_id: str) -> Chain:
    """The chain of one session's log."""
    return Chain(_DOMAIN, f"{workspace_id}/{session_id}")


def header(
    position: int,
    kind: int,
    event_id: str,
    event_type: str,
    processed_at: datetime | None,
    refers_position: int | None,
    transcript_head: Head | None,
) -> bytes:
    """What of a row is hashed openly; an absent value differs from every present one."""
    return frame(
        b"%d" % position,
        b"%d" % kind,
        event_id.encode(),
        event_type.encode(),
        _time(processed_at),
        b"" if refers_position is None else b"%d" % refers_position,
        *([] if transcript_head is None else [b"%d" % transcript_head.seq, transcript_head.digest]),
    )


def open_body(
    ring: SealRing, sealed: bytes, workspace_id: str, session_id: str, position: int, event_id: str
) -> tuple[bytes, bytes]:
    """Salt and body of a sealed column; raises SealBroken."""
    plain = ring.open(sealed, _TABLE, workspace_id, session_id, position, event_id)
    return plain[:SALT_BYTES], plain[SALT_BYTES:]


def committed(salt: bytes, body: bytes) -> bytes:
    """The commitment column of a row with a body."""
    return commitment(salt, body)


def seal_redaction(
    ring: SealRing, workspace_id: str, session_id: str, position: int, commitment: bytes
) -> bytes:
    """What says that the body with this commitment was redacted."""
    return ring.seal(commitment, "ledger.redactions", workspace_id, session_id, position)


def is_redacted(
    ring: SealRing,
    workspace_id: str,
    session_id: str,
    position: int,
    commitment: bytes,
    seal: bytes | None,
) -> bool:
    """Whether a row's body was replaced by a redaction."""
    if seal is None:
        return False
    try:
        opened = ring.open(seal, "ledger.redactions", workspace_id, session_id, position)
    except SealBroken:
        return False
    return opened == commitment


def _time(moment: datetime | None) -> bytes:
    return b"" if moment is None else b"%d" % ((moment - _EPOCH) // _MICROSECOND)
