"""What an example left behind, read through the public and internal contracts."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from counterfoil.context.v1 import context_pb2, context_pb2_grpc
from counterfoil.journal.v1 import journal_pb2, journal_pb2_grpc
from counterfoil.ledger.v1 import session_pb2, turn_pb2
from counterfoil.transcript.v1 import transcript_pb2, transcript_pb2_grpc
from counterfoil.types.v1 import reference_pb2

from foundation import projections
from services.runner import names
from tests.laws.doubled import turn_ends
from tests.laws.doubled.public_log import Json, PublicLog
from tests.laws.doubled.stage import API_KEY, Stage

_METADATA = (("x-api-key", API_KEY),)
_ENTRY = transcript_pb2.TranscriptEntryKind


@dataclass(frozen=True)
class Result:
    """What the model and the public are told about a call."""

    text: str
    is_error: bool


@dataclass(frozen=True)
class Evidence:
    """Everything."""

    log: PublicLog
    listed: list[Json]
    entries: list[transcript_pb2.Entry]
    operations: dict[str, journal_pb2.Operation]
    log_verified: turn_pb2.VerifyLogResponse
    transcript_verified: transcript_pb2.VerifyTranscriptResponse
    session: session_pb2.Session
    summaries: list[str]
    """Public events of the summaries that requests began with, in order. A request whose start an
    interrupt kept out of the log was never sent: the next one tells of its summary."""

    def of_kind(self, name: str) -> list[transcript_pb2.Entry]:
        """Transcript entries of a kind, in order."""
        kind = _ENTRY.Value(f"TRANSCRIPT_ENTRY_KIND_{name}")
        return [entry for entry in self.entries if entry.kind == kind]

    def public_results(self) -> dict[str, Result]:
        """Results by use id; a second one for the same call is under `<use id> again`."""
        found: dict[str, Result] = {}
        for event in self.listed:
            use_id = event.get("custom_tool_use_id") or event.get("tool_use_id")
            if event["type"] in ("user.custom_tool_result", "agent.tool_result"):
                place = f"{use_id} again" if use_id in found else str(use_id)
                found[place] = Result(text_of(event["content"]), bool(event.get("is_error")))
        return found


async def gather(stage: Stage, thread: reference_pb2.ThreadRef) -> Evidence:
    """Read it all."""
    session_id = thread.session_id
    transcript = transcript_pb2_grpc.TranscriptServiceStub(stage.inner)
    journal = journal_pb2_grpc.JournalServiceStub(stage.inner)
    verified = await stage.turns.VerifyLog(turn_pb2.VerifyLogRequest(session_id=session_id))
    listed = await stage.sessions.ListEvents(
        session_pb2.ListEventsRequest(session_id=session_id), metadata=_METADATA
    )
    got = await stage.sessions.GetSession(
        session_pb2.GetSessionRequest(session_id=session_id), metadata=_METADATA
    )
    operations = await journal.InspectOperations(
        journal_pb2.InspectOperationsRequest(thread=thread, reader="test", purpose="invariants")
    )
    context = context_pb2_grpc.ContextServiceStub(stage.inner)
    listing = context_pb2.ListSnapshotsRequest(thread=thread)
    snapshots = (await context.ListSnapshots(listing)).snapshots
    events: list[Json] = [json.loads(body) for body in listed.data]
    return Evidence(
        log=PublicLog(
            await _log(stage, session_id, verified.head.position),
            await turn_ends.ends(stage.clerk, session_id),
        ),
        listed=events,
        entries=list(
            (await transcript.ListEntries(transcript_pb2.ListEntriesRequest(thread=thread))).entries
        ),
        operations={operation.id: operation for operation in operations.operations},
        log_verified=verified,
        transcript_verified=await transcript.VerifyTranscript(
            transcript_pb2.VerifyTranscriptRequest(thread=thread)
        ),
        session=got.session,
        summaries=_summaries(thread.thread_id, snapshots, {one["id"] for one in events}),
    )


def _summaries(
    thread_id: str, snapshots: Iterable[context_pb2.SnapshotSummary], public: set[str]
) -> list[str]:
    sent = (
        one.checkpoint_id
        for one in snapshots
        if one.checkpoint_id and names.span_event(one.turn_id, one.round, one.attempt) in public
    )
    return [names.compaction_event(thread_id, id) for id in dict.fromkeys(sent)]


async def _log(stage: Stage, session_id: str, through: int) -> list[tuple[int, Json]]:
    request = session_pb2.StreamEventsRequest(session_id=session_id, position_after=0)
    stream = stage.sessions.StreamEvents(request, metadata=_METADATA)
    found: list[tuple[int, Json]] = []
    async for response in stream:
        found.extend((frame.position, json.loads(frame.json)) for frame in response.frames)
        if response.position_through >= through:
            break
    stream.cancel()
    return found


def text_of(content: Any) -> str:
    """The text of content blocks."""
    return "".join(str(block["text"]) for block in content or ())


def shown(operation: journal_pb2.Operation) -> Result:
    """What an operation's projection shows."""
    read = projections.read(operation.projection.body)
    return Result("".join(read.texts), read.is_error)
