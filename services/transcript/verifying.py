"""Reads a thread from end to end and verifies it."""

from counterfoil.transcript.v1 import transcript_pb2 as pb

from foundation.storage import Connection, SealRing
from services.transcript import redaction_store, store
from services.transcript.chain import ThreadKey
from services.transcript.verification import StoredName, Verification

_PAGE_ENTRIES = 100


async def verified(
    connection: Connection, ring: SealRing, key: ThreadKey
) -> pb.VerifyTranscriptResponse:
    """What holds of a thread and what does not, as this connection sees it."""
    row = await connection.fetchrow(store.HEAD, *key)
    head = store.head_of(row)
    redactions = await redaction_store.all_redactions(connection, key)
    verification = Verification(ring, key, redactions, is_deleted=head.is_deleted)
    seq = -(2**62)  # below every seq, so that one that was made negative is seen too
    while page := await connection.fetch(store.PAGE, *key, seq, _PAGE_ENTRIES):
        through = page[-1]["seq"]
        names: dict[int, list[StoredName]] = {}
        for name in await connection.fetch(store.PAGE_OF_NAMES, *key, seq, through):
            names.setdefault(name["seq"], []).append(StoredName(*name.values()))
        for stored in map(store.entry_of, page):
            verification.add(stored, names.get(stored.seq, ()))
        seq = through
    return verification.finish(head, None if row is None else row["seal"])
