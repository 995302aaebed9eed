"""The ledger: the log's chain and contents, and its digests of the transcript."""

from counterfoil.ledger.v1 import turn_pb2
from counterfoil.types.v1.reference_pb2 import Head

from cli import crosscheck
from cli.importing.checks.transcript import Transcript
from cli.importing.lines import Lines, Place, refuse
from foundation.exports.tables import Key
from foundation.storage import SealRing
from services.ledger.export_parts import LOG, PARTS, REDACTIONS, SESSION, THREAD
from services.ledger.log_row import LogHead
from services.ledger.verify_audit import Audit, stored


def check(lines: Lines, ring: SealRing, key: Key, head: Head, transcript: Transcript) -> None:
    """Check the ledger's lines. Raises ValueError for the first that does not hold."""
    session, thread = _only(lines, SESSION), _only(lines, THREAD)
    _check_state(lines, lines.row(PARTS[SESSION], session)["thread_id"])
    audit, places, digests = _audited(lines, ring, key)
    audit.queued([one.row["position"] for one in lines.rows(PARTS["ledger.queued"])])
    row = lines.row(PARTS[SESSION], session)
    audit.head(LogHead(row["log_position"], row["log_digest"], row["last_processed_at"]))
    _refuse_broken(audit, places, session)
    row = lines.row(PARTS[THREAD], thread)
    if (row["head_seq"], row["head_digest"]) != (head.seq, head.digest):
        raise refuse(thread, "head_digest", "the thread has another head than the export")
    _check_entries(lines, transcript)
    _check_calls(lines, digests)
    log = turn_pb2.VerifyLogResponse(vouches=audit.vouches, points=audit.points)
    for contradiction in crosscheck.contradictions(log, transcript.verified):
        raise ValueError(contradiction)


def _only(lines: Lines, kind: str) -> Place:
    places = lines.places(kind)
    if not places:
        raise ValueError("the lines of the session or its thread are missing")
    if len(places) > 1:
        raise refuse(places[1], "", "a session has one such line")
    return places[0]


def _audited(
    lines: Lines, ring: SealRing, key: Key
) -> tuple[Audit, dict[int, Place], dict[int, bytes]]:
    redactions = {
        one.row["position"]: REDACTIONS.at_rest(ring, key, one.row)["seal"]
        for one in lines.rows(REDACTIONS)
    }
    audit = Audit(ring, key[0], key[1], redactions)
    places, digests = dict[int, Place](), dict[int, bytes]()
    for place, row in lines.rows(LOG):
        places[row["position"]], digests[row["position"]] = place, row["digest"]
        audit.row(stored(LOG.at_rest(ring, key, row)))
    return audit, places, digests


def _refuse_broken(audit: Audit, places: dict[int, Place], session: Place) -> None:
    for one in audit.findings:
        if not one.informational:
            place = places.get(one.seq, session)
            raise refuse(place, "", f"log position {one.seq}: {one.message}")


def _check_state(lines: Lines, thread_id: str) -> None:
    """Every line is one that an export has, and of this thread."""
    for part in PARTS.values():
        for place, row in lines.rows(part):
            if row.get("thread_id", thread_id) != thread_id:
                raise refuse(place, "thread_id", "is of another thread")


def _check_entries(lines: Lines, transcript: Transcript) -> None:
    """What the ledger recorded of entries, and of answers, is what they are."""
    for place, row in lines.rows(PARTS["ledger.entries"]):
        if transcript.digests.get(row["entry_id"]) != row["digest"]:
            raise refuse(place, "digest", f"is not that of transcript entry {row['seq']}")
    for place, row in lines.rows(PARTS["ledger.rounds"]):
        if transcript.digests.get(row["answer_entry_id"]) != row["answer_digest"]:
            raise refuse(place, "answer_digest", "is not that of the answer in the transcript")


def _check_calls(lines: Lines, digests: dict[int, bytes]) -> None:
    """What the ledger recorded of clients' answers is what its log has there."""
    for place, row in lines.rows(PARTS["ledger.calls"]):
        position, digest = row["answer_position"], row["answer_digest"]
        if digest is not None and digests.get(position) != digest:
            raise refuse(place, "answer_digest", f"is not that of log position {position}")
