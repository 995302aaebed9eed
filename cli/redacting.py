"""Takes something out of a session for good, authority by authority, and out of its forks.

The context is asked first: from then on nothing is shown any more. Every step may be repeated, so a
command that was cut off is simply given again.
"""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

from counterfoil.context.v1 import context_pb2, context_pb2_grpc
from counterfoil.files.v1 import artifacts_pb2, artifacts_pb2_grpc
from counterfoil.journal.v1 import journal_pb2, journal_pb2_grpc
from counterfoil.ledger.v1 import turn_pb2, turn_pb2_grpc
from counterfoil.transcript.v1 import transcript_pb2, transcript_pb2_grpc
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1.reference_pb2 import ThreadRef

from cli import output
from cli.operator import channel, service_key
from cli.output import Form, Row
from cli.progress import waiting
from foundation.errors import Failure, wrong_state
from foundation.settings import Settings

_CALL_SECONDS = 600.0
_ARTIFACTS_AT_ONCE = 1000
_SERVICES = ("context", "journal", "transcript", "ledger", "files")


class Target(NamedTuple):
    """What is redacted: the result of an operation, or the input or answer of a transcript
    entry."""

    operation_id: str = ""
    entry_seq: int = 0


class Asked(NamedTuple):
    """Who redacts, and why."""

    reader: str
    reason: str


@dataclass(frozen=True)
class Authorities:
    """Whom a redaction asks."""

    context: context_pb2_grpc.ContextServiceStub
    journal: journal_pb2_grpc.JournalServiceStub
    transcript: transcript_pb2_grpc.TranscriptServiceStub
    ledger: turn_pb2_grpc.TurnServiceStub
    files: artifacts_pb2_grpc.ArtifactServiceStub


async def redact(
    settings: Settings, session_id: str, operation_id: str, event_id: str, asked: Asked, form: Form
) -> None:
    """Redacts and prints a row for the session and for each fork. Raises Failure (WRONG_STATE while
    a fork is being copied: the rest is done then), OSError."""
    copying: list[str] = []
    async with _authorities(settings) as to:
        thread, target = await _target(to, session_id, operation_id, event_id)
        waits = [thread]
        while waits:
            thread = waits.pop(0)
            with waiting(f"Redacting in {thread.session_id} …"):
                row, forks = await _redact_in(to, thread, target, asked, thread.session_id)
            output.facts(form, row)
            waits += [fork.thread for fork in forks if fork.is_copied]
            copying += [fork.thread.session_id for fork in forks if not fork.is_copied]
    if copying:
        names = ", ".join(copying)
        raise wrong_state(f"still being copied: {names}. Give the command again when it is done")


@asynccontextmanager
async def _authorities(settings: Settings) -> AsyncGenerator[Authorities]:
    key = service_key(settings)
    async with AsyncExitStack() as stack:
        found = [await stack.enter_async_context(channel(settings, s, key)) for s in _SERVICES]
        context, journal, transcript, ledger, files = (one.as_channel() for one in found)
        yield Authorities(
            context_pb2_grpc.ContextServiceStub(context),
            journal_pb2_grpc.JournalServiceStub(journal),
            transcript_pb2_grpc.TranscriptServiceStub(transcript),
            turn_pb2_grpc.TurnServiceStub(ledger),
            artifacts_pb2_grpc.ArtifactServiceStub(files),
        )


async def _target(
    to: Authorities, session_id: str, operation_id: str, event_id: str
) -> tuple[ThreadRef, Target]:
    if operation_id:
        request = turn_pb2.LocateThreadRequest(session_id=session_id)
        return (await to.ledger.LocateThread(request)).thread, Target(operation_id)
    found = await to.ledger.LocateEvent(
        turn_pb2.LocateEventRequest(session_id=session_id, event_id=event_id)
    )
    return found.thread, Target(found.operation_id, found.entry_seq)


async def _redact_in(
    to: Authorities, thread: ThreadRef, target: Target, asked: Asked, session_id: str
) -> tuple[Row, list[turn_pb2.ForkedThread]]:
    """What was done in a thread, and the forks that hold the target, too."""
    try:
        shown = await to.context.Redact(
            context_pb2.RedactRequest(thread=thread, **_named(target), **asked._asdict()),
            timeout=_CALL_SECONDS,
        )
    except Failure as failure:
        if failure.reason != reasons.ERROR_REASON_DELETED:
            raise
        return {"session_id": session_id, "status": "deleted"}, []
    operations = [one.operation_id for one in shown.targets if one.operation_id]
    artifacts = await _erase_outcomes(to, thread, operations, asked)
    events: list[str] = []
    forks: Sequence[turn_pb2.ForkedThread] = ()
    for one in shown.targets:
        if not one.operation_id:
            await _erase_entry(to, thread, one, asked)
        done = await to.ledger.RedactEvents(
            turn_pb2.RedactEventsRequest(
                thread=thread, **_named(Target(one.operation_id, one.seq)), **asked._asdict()
            )
        )
        events += done.event_ids
        forks = done.forks
    deleted = await _delete_artifacts(to, thread, artifacts)
    first = min(one.seq for one in shown.targets)
    concerned = [fork for fork in forks if fork.cut_seq >= first]
    row: Row = {
        "session_id": session_id,
        "status": "redacted",
        "entries": [one.seq for one in shown.targets],
        "operations": operations,
        "events": events,
        "checkpoints_revoked": shown.revoked_checkpoints,
        "artifacts_deleted": deleted,
        "forks": [fork.thread.session_id for fork in concerned],
    }
    return row, concerned


def _named(target: Target) -> dict[str, object]:
    if target.operation_id:
        return {"operation_id": target.operation_id}
    return {"entry_seq": target.entry_seq}


async def _erase_outcomes(
    to: Authorities, thread: ThreadRef, operations: Iterable[str], asked: Asked
) -> list[str]:
    """Erase what the journal keeps; the artifacts that it referred to."""
    artifacts: list[str] = []
    for id in operations:
        erased = await to.journal.RedactOperation(
            journal_pb2.RedactOperationRequest(thread=thread, operation_id=id, **asked._asdict())
        )
        artifacts += erased.artifact_ids
    return list(dict.fromkeys(artifacts))


async def _erase_entry(
    to: Authorities, thread: ThreadRef, found: context_pb2.RedactedTarget, asked: Asked
) -> None:
    """Erase the content of an input or an answer, and what the journal keeps of the answer's
    calls: after the content is gone nobody knows all of them."""
    for id in found.call_operation_ids:
        try:
            await to.journal.RedactOperation(
                journal_pb2.RedactOperationRequest(
                    thread=thread, operation_id=id, input=True, **asked._asdict()
                )
            )
        except Failure as failure:
            if failure.reason != reasons.ERROR_REASON_NOT_FOUND:
                raise
    await to.transcript.RedactEntry(
        transcript_pb2.RedactEntryRequest(thread=thread, seq=found.seq, **asked._asdict())
    )


async def _delete_artifacts(to: Authorities, thread: ThreadRef, artifacts: Sequence[str]) -> int:
    """Delete, without a grace period, those artifacts that nothing else in the session refers to;
    how many that were."""
    if not artifacts:
        return 0
    session = {"workspace_id": thread.workspace_id, "session_id": thread.session_id}
    kept = await to.journal.CollectReferences(journal_pb2.CollectReferencesRequest(**session))
    gone = [id for id in artifacts if id not in set(kept.artifact_ids)]
    deleted = 0
    for start in range(0, len(gone), _ARTIFACTS_AT_ONCE):
        page = gone[start : start + _ARTIFACTS_AT_ONCE]
        await to.files.CondemnArtifacts(
            artifacts_pb2.CondemnArtifactsRequest(**session, artifact_ids=page, grace_ms=0)
        )
        swept = await to.files.SweepArtifacts(
            artifacts_pb2.SweepArtifactsRequest(**session, artifact_ids=page, grace_ms=0)
        )
        deleted += swept.deleted
    return deleted
