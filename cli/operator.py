"""Channels to running services as an operator, and the commands verify and turns release."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from counterfoil.context.v1 import context_pb2, context_pb2_grpc
from counterfoil.ledger.v1 import turn_pb2, turn_pb2_grpc
from counterfoil.transcript.v1 import transcript_pb2, transcript_pb2_grpc
from rich.console import Console

from cli import crosscheck
from cli.output import Form, line
from cli.progress import waiting
from foundation.datafolder import SERVICE_KEY_NAME
from foundation.rpc.remote import RemoteChannel
from foundation.settings import Settings

_VERIFY_SECONDS = 600.0

console = Console(highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class Kept:
    """Heads that somebody kept outside, `<position>:<hex digest>`; empty for none."""

    log: str = ""
    transcript: str = ""


@asynccontextmanager
async def channel(settings: Settings, service: str, key: str) -> AsyncGenerator[RemoteChannel]:
    """A channel to a service: its own address, or the embedded deployment's gRPC port."""
    address = settings.address_of(service) or f"{settings.host}:{settings.grpc_port}"
    remote = RemoteChannel(address, key)
    try:
        yield remote
    finally:
        await remote.close()


def service_key(settings: Settings) -> str:
    """The service credential: a file of its own, or the data folder's. Raises OSError."""
    path = settings.service_key_file or settings.data_dir / SERVICE_KEY_NAME
    return path.read_text().strip()


async def verify(
    settings: Settings, session_id: str, kept: Kept, form: Form, *, requests: bool
) -> bool:
    """Recomputes both chains of a session and what the model was shown of it, and prints the
    verdict; True when everything holds. `requests`: every request is built again, too."""
    key = service_key(settings)
    async with (
        channel(settings, "ledger", key) as ledger,
        channel(settings, "transcript", key) as transcripts,
        channel(settings, "context", key) as contexts,
    ):
        with waiting(f"Verifying the log of {session_id} …"):
            turns = turn_pb2_grpc.TurnServiceStub(ledger.as_channel())
            log = await turns.VerifyLog(
                turn_pb2.VerifyLogRequest(session_id=session_id), timeout=_VERIFY_SECONDS
            )
        with waiting(f"Verifying the transcript of {session_id} …"):
            stub = transcript_pb2_grpc.TranscriptServiceStub(transcripts.as_channel())
            transcript = await stub.VerifyTranscript(
                transcript_pb2.VerifyTranscriptRequest(thread=log.thread), timeout=_VERIFY_SECONDS
            )
        with waiting(f"Verifying what the model was shown of {session_id} …"):
            shown = await context_pb2_grpc.ContextServiceStub(contexts.as_channel()).VerifyContext(
                context_pb2.VerifyContextRequest(thread=log.thread, requests=requests),
                timeout=_VERIFY_SECONDS,
            )
    broken = _broken(log, transcript, kept)
    broken += [f"context: {found.message}" for found in shown.findings if not found.informational]
    if form is Form.JSON:
        context = {
            "transitions": shown.transitions,
            "checkpoints": shown.checkpoints,
            "snapshots": shown.snapshots,
            "requests_rebuilt": shown.snapshots if requests else 0,
        }
        line({**_verdict(session_id, log, transcript, broken), "context": context})
    else:
        _report(log, transcript, shown, broken, requests=requests)
    return not broken


def _verdict(
    session_id: str,
    log: turn_pb2.VerifyLogResponse,
    transcript: transcript_pb2.VerifyTranscriptResponse,
    broken: list[str],
) -> dict[str, Any]:
    """The verdict for programs; heads in the form that the options take."""
    return {
        "session_id": session_id,
        "holds": not broken,
        "log": {"entries": log.entries, "head": f"{log.head.position}:{log.head.digest.hex()}"},
        "transcript": {
            "entries": transcript.entries,
            "head": f"{transcript.head.seq}:{transcript.head.digest.hex()}",
        },
        "erased": len(_erased(log, transcript)),
        "broken": broken,
    }


def _erased(
    log: turn_pb2.VerifyLogResponse, transcript: transcript_pb2.VerifyTranscriptResponse
) -> list[Any]:
    return [found for found in (*log.findings, *transcript.findings) if found.informational]


def _report(
    log: turn_pb2.VerifyLogResponse,
    transcript: transcript_pb2.VerifyTranscriptResponse,
    shown: context_pb2.VerifyContextResponse,
    broken: list[str],
    *,
    requests: bool,
) -> None:
    console.print(
        f"log         {log.entries} entries, head {log.head.position}:{log.head.digest.hex()}"
    )
    console.print(
        f"transcript  {transcript.entries} entries,"
        f" head {transcript.head.seq}:{transcript.head.digest.hex()}"
    )
    rebuilt = ", every request built again" if requests else ""
    console.print(
        f"context     {shown.transitions} transitions, {shown.checkpoints} checkpoints,"
        f" {shown.snapshots} requests{rebuilt}"
    )
    for found in shown.findings:
        if found.informational:
            console.print(f"redacted    {found.message}")
    erased = _erased(log, transcript)
    if erased:
        console.print(f"erased      content of {len(erased)} entries; their links hold")
    for what in broken:
        console.print(f"BROKEN      {what}", style="bold red")
    if not broken:
        console.print("Everything holds.", style="bold green")


def _broken(
    log: turn_pb2.VerifyLogResponse,
    transcript: transcript_pb2.VerifyTranscriptResponse,
    kept: Kept,
) -> list[str]:
    """Everything that does not hold, first places first."""
    lines = [f"log {f.seq}: {f.message}" for f in log.findings if not f.informational]
    lines += [
        f"transcript {f.seq}: {f.message}" for f in transcript.findings if not f.informational
    ]
    lines += crosscheck.contradictions(log, transcript)
    points = {point.position: point.digest for point in log.points}
    heads = {head.seq: head.digest for head in transcript.heads}
    tails = [
        crosscheck.tail_missing(kept.log, log.head.position, points, "log"),
        crosscheck.tail_missing(kept.transcript, transcript.head.seq, heads, "transcript"),
    ]
    return lines + [line for line in tails if line]


async def release(settings: Settings, turn_id: str) -> None:
    """Gives a quarantined turn one more attempt."""
    async with channel(settings, "ledger", service_key(settings)) as ledger:
        stub = turn_pb2_grpc.TurnServiceStub(ledger.as_channel())
        done = await stub.ReleaseTurn(turn_pb2.ReleaseTurnRequest(turn_id=turn_id))
    console.print(f"{turn_id} of session {done.thread.session_id} gets one more attempt.")
