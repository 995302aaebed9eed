"""Erases the content of single entries, for good."""

from counterfoil.transcript.v1 import transcript_pb2 as pb

from foundation import ids
from foundation.errors import deleted, invalid, not_found
from foundation.rpc import context as call
from foundation.storage import Database, SealRing
from services.transcript import heads, redaction_store
from services.transcript.chain import key_of, seal_redaction

_KINDS = (
    pb.TRANSCRIPT_ENTRY_KIND_INPUT,
    pb.TRANSCRIPT_ENTRY_KIND_ANSWER,
    pb.TRANSCRIPT_ENTRY_KIND_NOTE,
    pb.TRANSCRIPT_ENTRY_KIND_CONTINUE,
)


async def redact(
    db: Database, ring: SealRing, request: pb.RedactEntryRequest
) -> pb.RedactEntryResponse:
    """Erase an entry's content; raises what the contract says."""
    key, seq = key_of(request.thread), request.seq
    async with db.commit("transcript.redact") as connection:
        head = await heads.locked(connection, ring, key, create=False)
        if head.is_deleted:
            raise deleted(key.thread_id)
        row = await redaction_store.entry(connection, key, seq)
        if row is None:
            raise not_found("entry", str(seq))
        if row["kind"] not in _KINDS:
            raise invalid("seq", f"entry {seq} is neither input nor answer")
        if not row["is_redacted"]:
            seal = seal_redaction(ring, key, seq, row["commitment"])
            await redaction_store.insert(connection, key, {seq: seal})
        await redaction_store.erase(connection, key, seq)
        asked = (call.current().request_id, seq, request.reader, request.reason)
        await redaction_store.note(connection, key, ids.new("access"), *asked)
    return pb.RedactEntryResponse(created=not row["is_redacted"])
