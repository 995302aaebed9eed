"""Compares what the two hash chains of a session vouch for. Pure."""

from collections.abc import Iterable

from counterfoil.ledger.v1 import turn_pb2
from counterfoil.transcript.v1 import transcript_pb2


def contradictions(
    log: turn_pb2.VerifyLogResponse, transcript: transcript_pb2.VerifyTranscriptResponse
) -> list[str]:
    """Where one chain does not hold what the other one vouches for; empty when they agree."""
    return [*_log_vouches(log, transcript), *_transcript_vouches(log, transcript)]


def _log_vouches(
    log: turn_pb2.VerifyLogResponse, transcript: transcript_pb2.VerifyTranscriptResponse
) -> Iterable[str]:
    """Each idle of the log names the transcript's head at that time."""
    digests = {head.seq: head.digest for head in transcript.heads}
    for vouch in log.vouches:
        if vouch.head.seq == 0:
            continue
        found = digests.get(vouch.head.seq)
        said = f"log position {vouch.position} vouches for transcript entry {vouch.head.seq}"
        if found is None:
            yield f"{said}, which is missing"
        elif found != vouch.head.digest:
            yield f"{said} with another digest"


def _transcript_vouches(
    log: turn_pb2.VerifyLogResponse, transcript: transcript_pb2.VerifyTranscriptResponse
) -> Iterable[str]:
    """Each input and results entry of the transcript names a point of the log."""
    digests = {point.position: point.digest for point in log.points}
    for vouch in transcript.vouches:
        position = vouch.log_point.position
        if position == 0:
            continue
        found = digests.get(position)
        said = f"transcript entry {vouch.seq} vouches for log position {position}"
        if found is None:
            yield f"{said}, which is missing"
        elif found != vouch.log_point.digest:
            yield f"{said} with another digest"


def tail_missing(kept: str, position: int, digests: "dict[int, bytes]", what: str) -> str | None:
    """Compares with a head kept outside, `<position>:<hex digest>`; what is wrong, or None.

    An empty `kept` compares nothing. Raises ValueError when it is not of that form.
    """
    if not kept:
        return None
    number, _, digest = kept.partition(":")
    seq, wanted = int(number), bytes.fromhex(digest)
    if seq > position:
        return f"the {what} ends at {position}, before the kept head {seq}: its tail is missing"
    if digests.get(seq) != wanted:
        return f"the {what} has another digest at {seq} than the kept head"
    return None
