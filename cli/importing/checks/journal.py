"""The journal: every outcome is the one that the transcript refers to."""

from dataclasses import dataclass, field

import msgspec
from counterfoil.journal.v1 import journal_pb2 as pb
from counterfoil.types.v1.reference_pb2 import Attempt

from cli.importing.checks.transcript import Transcript
from cli.importing.lines import Lines, Place, refuse
from foundation import projections
from foundation.exports.tables import Row
from foundation.operations import model_operation
from services.journal.export_parts import OPERATIONS, OUTCOMES, REDACTIONS
from services.journal.projection import Projected
from services.journal.rows import Erased, decode_erased


@dataclass
class Journal:
    """What the lines of a journal hold."""

    outcomes: dict[str, Place] = field(default_factory=dict[str, Place])
    """Lines with a projection, by operation."""
    erased: dict[str, Erased] = field(default_factory=dict[str, Erased])
    """What is left of redacted outcomes, by operation."""
    requests: dict[str, tuple[bytes, Place]] = field(default_factory=dict[str, tuple[bytes, Place]])
    """Digests of requests by snapshot."""


def check(lines: Lines, transcript: Transcript) -> Journal:
    """Read a journal. Raises ValueError for the first line that does not hold."""
    found = Journal()
    known = set[str]()
    for place, row in lines.rows(OPERATIONS):
        known.add(row["operation_id"])
        _operation(found, transcript, place, row)
    for place, row in lines.rows(OUTCOMES):
        if row["operation_id"] not in known:
            raise refuse(place, "operation_id", "no line before has this operation")
        if row["projection"] is not None:
            found.outcomes[row["operation_id"]] = place
            digest = projections.digest(row["projection"])
            _same(transcript, row["operation_id"], digest, place, "projection")
    for place, row in lines.rows(REDACTIONS):
        try:
            erased = decode_erased(row["sealed"])
        except msgspec.DecodeError:
            raise refuse(place, "sealed", "cannot be read") from None
        found.erased[row["operation_id"]] = erased
        _same(transcript, row["operation_id"], erased.digest, place, "sealed")
    for operation_id, (_, place) in transcript.results.items():
        if operation_id not in found.outcomes and operation_id not in found.erased:
            raise refuse(place, "", f"refers to {operation_id}, of which no line has the outcome")
    return found


def operation(lines: Lines, found: Journal, operation_id: str) -> pb.Operation | None:
    """An operation with its projection, as history reads it; None for one without outcome."""
    made = pb.Operation(id=operation_id)
    erased = found.erased.get(operation_id)
    if erased is not None:
        shown = Projected(projections.REDACTED, erased.digest)
    elif operation_id in found.outcomes:
        body = lines.row(OUTCOMES, found.outcomes[operation_id])["projection"]
        shown = Projected(body, projections.digest(body))
    else:
        return None
    made.projection.body, made.projection.digest = shown.body, shown.digest
    return made


def _operation(found: Journal, transcript: Transcript, place: Place, row: Row) -> None:
    if row["kind"] != pb.OPERATION_KIND_MODEL_CALL:
        return
    if row["request_digest"] is not None and row["snapshot_id"]:
        found.requests[row["snapshot_id"]] = (row["request_digest"], place)
    attempt = Attempt(epoch=row["attempt_epoch"], number=row["attempt_number"])
    if row["operation_id"] != model_operation(row["turn_id"], row["round"], attempt):
        return  # it wrote a summary, which is no answer
    where = (row["turn_id"], row["round"], attempt.epoch, attempt.number)
    answer = transcript.answers.get(where)
    if None not in (answer, row["answer_digest"]) and answer != row["answer_digest"]:
        raise refuse(place, "answer_digest", "is not the digest of the answer in the transcript")


def _same(
    transcript: Transcript, operation_id: str, digest: bytes, place: Place, column: str
) -> None:
    wanted = transcript.results.get(operation_id)
    if wanted is not None and wanted[0] != digest:
        message = f"is not the projection that line {wanted[1].number} refers to by its digest"
        raise refuse(place, column, message)
