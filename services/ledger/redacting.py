"""Replaces the content of public events for good.

The body of an event that was redacted has the same id and type and says only that it was redacted,
so that every reader of the log shows it like any other. The chain still holds the commitment to the
old body, whose salt is gone with it; a sealed record says that the two differ as they should.
"""

from collections.abc import Sequence

import msgspec
from counterfoil.ledger.v1 import turn_pb2 as pb
from counterfoil.types.v1.reference_pb2 import Attempt, ThreadRef

from foundation import ids
from foundation.digests import new_salt
from foundation.errors import invalid, not_found, wrong_state
from foundation.idempotency.replays import empty_answers
from foundation.operations import block_event
from foundation.outcomes import REDACTED, REDACTED_INPUT, REDACTED_INPUT_TEXT, failure_text
from foundation.rpc import context
from foundation.storage import Connection, Database, Record, SealRing
from services.ledger import log_chain, redaction_store
from services.ledger.redaction_store import Session

_SAID = ("user.message", "system.message", "answer")

_BLOCKS_MAX = 4096
"""More than the blocks of an answer: each takes several of its tokens."""

_SEND = "/counterfoil.ledger.v1.SessionService/SubmitEvents"


class EventRedactor:
    """Redacts events of one database."""

    def __init__(self, db: Database, ring: SealRing) -> None:
        self._db = db
        self._ring = ring

    async def locate(self, thread: ThreadRef, event_id: str) -> pb.LocateEventResponse:
        """What an event is in the history; raises what the contract says."""
        session = _session(thread)
        row = await redaction_store.locate(self._db, session, event_id)
        if row is None:
            around = await redaction_store.answers_around(self._db, session, event_id)
            row = _answer_of(event_id, around)
        if row is None:
            raise not_found("message, call or result", event_id)
        response = pb.LocateEventResponse(thread=thread)
        if row["operation_id"] is not None:
            response.operation_id = row["operation_id"]
        elif row["entry_type"] not in _SAID:
            raise invalid("event_id", f"{event_id} is a {row['entry_type']}, which says nothing")
        elif not row["is_over"]:
            raise wrong_state(f"the turn of event {event_id} is not over: wait, or interrupt it")
        elif row["entry_seq"] is None:
            raise wrong_state(f"event {event_id} is not part of the history yet")
        else:
            response.entry_seq = row["entry_seq"]
        return response

    async def redact(self, request: pb.RedactEventsRequest) -> pb.RedactEventsResponse:
        """Redact what is not redacted yet; raises what the contract says."""
        session = _session(request.thread)
        async with self._db.commit("ledger.redact") as c:
            if request.HasField("operation_id"):
                rows = await redaction_store.of_operation(c, session, request.operation_id)
                said = failure_text(REDACTED)
            else:
                rows = await self._of_entry(c, session, request.entry_seq)
                said = REDACTED_INPUT_TEXT
            event_ids = [row["event_id"] for row in rows if await self._row(c, session, row, said)]
            await empty_answers(c, self._ring, "ledger", session[0], session[1], _SEND)
            asked = (context.current().request_id, request.reader, request.reason)
            await redaction_store.note(c, session, ids.new("access"), *asked)
            forks = await redaction_store.forks(c, session)
        response = pb.RedactEventsResponse(event_ids=event_ids)
        for row in forks:
            fork = response.forks.add(cut_seq=row["cut_seq"], is_copied=row["is_copied"])
            for name in ("workspace_id", "session_id", "thread_id"):
                setattr(fork.thread, name, row[name])
        return response

    async def _of_entry(self, c: Connection, session: Session, seq: int) -> list[Record]:
        found = await redaction_store.answer(c, session, seq)
        if found is None:
            return await redaction_store.of_entry(c, session, seq)
        event_ids = [_block_event(found, index) for index in range(_BLOCKS_MAX)]
        return await redaction_store.of_events(c, session, event_ids)

    async def _row(self, c: Connection, session: Session, row: Record, said: str) -> bool:
        """Redact one entry of the log; False for one that says nothing, as a confirmation."""
        if row["seal"] is not None:
            return True
        position, event_id = row["position"], row["event_id"]
        _, body = log_chain.open_body(self._ring, row["sealed"], *session, position, event_id)
        redacted = redacted_body(body, said)
        if redacted is None:
            return False
        writer = log_chain.writer(self._ring, *session)
        sealed = writer.seal(new_salt(), redacted, position, event_id)
        seal = log_chain.seal_redaction(self._ring, *session, position, row["commitment"])
        await redaction_store.replace(c, session, position, sealed, seal)
        return True


def redacted_body(body: bytes, said: str) -> bytes | None:
    """The event without its content or input; None for one that has neither. Pure."""
    members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    if "content" in members:
        members["content"] = msgspec.Raw(msgspec.json.encode([{"type": "text", "text": said}]))
    elif "input" in members:
        members["input"] = msgspec.Raw(REDACTED_INPUT)
    else:
        return None
    return msgspec.json.encode(members)


def _answer_of(event_id: str, answers: Sequence[Record]) -> Record | None:
    """The answer that has an event; what is shorter is looked through first."""
    for index in range(_BLOCKS_MAX):
        for one in answers:
            if _block_event(one, index) == event_id:
                return one
    return None


def _block_event(answer: Record, block_index: int) -> str:
    attempt = Attempt(epoch=answer["attempt_epoch"], number=answer["attempt_number"])
    return block_event(answer["turn_id"], answer["round"], attempt, block_index)


def _session(thread: ThreadRef) -> Session:
    return thread.workspace_id, thread.session_id
