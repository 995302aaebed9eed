"""The transcript: its chain, its contents, and what its entries refer to."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from counterfoil.transcript.v1 import transcript_pb2 as pb
from counterfoil.types.v1.reference_pb2 import Head

from cli.importing.lines import Lines, Place, refuse
from foundation.digests import SALT_BYTES
from foundation.exports.tables import Row
from foundation.storage import SealRing
from services.transcript.chain import StoredEntry, StoredHead, ThreadKey, seal_head
from services.transcript.export_parts import ENTRIES, NAMES, REDACTIONS, names_of
from services.transcript.reading import show_entry
from services.transcript.verification import StoredName, Verification


@dataclass
class Transcript:
    """What the lines of a transcript hold."""

    verified: pb.VerifyTranscriptResponse
    places: dict[int, Place] = field(default_factory=dict[int, Place])
    """The entries' lines by their numbers."""
    digests: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """The entries' digests by their ids."""
    answers: dict[tuple[str, int, int, int], bytes] = field(
        default_factory=dict[tuple[str, int, int, int], bytes]
    )
    """Digests of answers by turn, round and attempt."""
    results: dict[str, tuple[bytes, Place]] = field(default_factory=dict[str, tuple[bytes, Place]])
    """What is referred to: digests of projections by operation."""

    def digest(self, seq: int) -> bytes | None:
        """The digest of an entry; empty before the first one, None where there is none."""
        if seq == 0:
            return b""
        heads = self.verified.heads
        return heads[seq - 1].digest if seq <= len(heads) else None


def check(lines: Lines, ring: SealRing, key: ThreadKey, head: Head) -> Transcript:
    """Read a transcript. Raises ValueError for the first line that does not hold."""
    found = Transcript(pb.VerifyTranscriptResponse())
    seals = {one.row["seq"]: one.row["seal"] for one in lines.rows(REDACTIONS)}
    stored = {
        one.row["seq"]: REDACTIONS.at_rest(ring, key, one.row)["seal"]
        for one in lines.rows(REDACTIONS)
    }
    verification = Verification(ring, key, stored, is_deleted=False)
    last = StoredHead(0, b"", 0, False)
    for place, row in lines.rows(ENTRIES):
        seq = row["seq"]
        found.places[seq] = place
        sealed = ENTRIES.at_rest(ring, key, row)
        names = [StoredName(*NAMES.at_rest(ring, key, name).values()) for name in names_of(row)]
        verification.add(StoredEntry(*(sealed[one] for one in StoredEntry._fields)), names)
        _note(found, place, row)
        last = StoredHead(seq, row["digest"], 0, False)
    found.verified = verification.finish(last, seal_head(ring, key, last))
    _refuse_broken(lines, found)
    _check_redactions(lines, found, seals)
    if Head(seq=last.seq, digest=last.digest) != head:
        raise ValueError(f"the entries do not end with entry {head.seq} of the export")
    return found


def entries(lines: Lines, found: Transcript, after: int, through: int) -> Iterator[pb.Entry]:
    """Entries as messages; the transcript was checked."""
    for seq in range(after + 1, min(through, len(found.places)) + 1):
        row = lines.row(ENTRIES, found.places[seq])
        message = pb.Entry()
        content = row["content"]
        show_entry(
            StoredEntry(*(row[one] for one in StoredEntry._fields)),
            None if content is None else content[SALT_BYTES:],
            message,
        )
        yield message


def _note(found: Transcript, place: Place, row: Row) -> None:
    found.digests[row["entry_id"]] = row["digest"]
    if row["kind"] == pb.TRANSCRIPT_ENTRY_KIND_ANSWER:
        where = (row["turn_id"], row["round"], row["attempt_epoch"], row["attempt_number"])
        found.answers[where] = row["digest"]
    if row["content"] is None:
        return
    content = pb.EntryContent.FromString(row["content"][SALT_BYTES:])
    for one in content.results:
        found.results[one.operation_id] = (one.projection_digest, place)


def _refuse_broken(lines: Lines, found: Transcript) -> None:
    for one in found.verified.findings:
        if one.informational:
            continue
        place = found.places.get(one.seq)
        if place is None:  # an entry that is missing: the next one is where it shows
            behind = [seq for seq in found.places if seq > one.seq]
            place = found.places[min(behind)] if behind else None
        if place is None:
            raise ValueError(f"transcript entry {one.seq}: {one.message}")
        raise refuse(place, "", f"entry {one.seq}: {one.message}")


def _check_redactions(lines: Lines, found: Transcript, seals: dict[int, bytes]) -> None:
    """A redaction belongs to an entry that has lost its content, and names its commitment."""
    for place in lines.places(REDACTIONS.kind):
        seq = lines.row(REDACTIONS, place)["seq"]
        entry = found.places.get(seq)
        row = None if entry is None else lines.row(ENTRIES, entry)
        if row is None or row["content"] is not None or row["commitment"] != seals[seq]:
            raise refuse(place, "seal", f"is not of the content that entry {seq} has lost")
