"""Checks a whole export before the first of its lines is stored anywhere.

Every digest that a line has is computed again from what stands in the file, with the authorities'
own verifiers; a session whose lines pass verifies where it comes to live. So what is refused for
what it holds leaves nothing behind.
"""

import secrets
from functools import partial

from cli.importing.checks import context, journal, ledger, reading, transcript
from cli.importing.checks.reading import Artifact
from cli.importing.exported import Exported
from cli.importing.lines import Lines, Place, refuse
from foundation.errors import Failure
from foundation.exports import Line
from foundation.storage import SealRing
from services.files.export_parts import ARTIFACT, artifact_row, check_artifact
from services.transcript.chain import key_of


async def check(lines: Lines, exported: Exported) -> None:
    """Raises ValueError for the first line that does not hold: its number, its type, its member,
    and what differs."""
    thread, head = exported.thread, exported.cut.head
    # Verifiers open what they check: it is sealed for them, with a key that nobody else has.
    ring = SealRing("import", {"import": secrets.token_bytes(32)})
    key = key_of(thread)
    entries = transcript.check(lines, ring, key, head)
    ledger.check(lines, ring, key[:2], head, entries)
    outcomes = journal.check(lines, entries)
    artifacts = _artifacts(lines, thread.workspace_id)
    history = reading.history(lines, entries, outcomes, artifacts)
    await context.check(lines, ring, thread, outcomes, history)


def _artifacts(lines: Lines, workspace_id: str) -> dict[str, Artifact]:
    """Where to read the artifacts, each of which was checked."""
    found = dict[str, Artifact]()
    for place in lines.places(ARTIFACT):
        found[_checked(workspace_id, lines.line(place))] = partial(lines.line, place)
    for line in lines.older_artifacts():
        found.setdefault(_checked(workspace_id, line), partial(Line, *line))
    return found


def _checked(workspace_id: str, line: Line) -> str:
    try:
        row = artifact_row(line)
        check_artifact(workspace_id, row, line.number)
    except Failure as failure:
        place = Place(line.kind, line.number, 0)
        raise refuse(place, failure.path, failure.message) from None
    return row["artifact_id"]
