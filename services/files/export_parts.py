"""Artifacts as lines, with their bytes."""

import hashlib

from foundation import exports
from foundation.artifacts import artifact_id
from foundation.errors import Failure
from foundation.exports import BASE64, HEX, INT, TEXT, BytesForm, Form, Line, Members
from foundation.exports.lines import Pair, at_line, line, members_of
from foundation.exports.tables import Row

ARTIFACT = "files.artifact"
_MEMBERS: dict[str, Form | BytesForm] = {
    "artifact_id": TEXT,
    "media_type": TEXT,
    "role": INT,
    "operation_id": TEXT,
    "sha256": HEX,
    "body": BASE64,
}


def artifact_line(row: Row) -> bytes:
    """The line of an artifact."""
    pairs: list[Pair] = []
    for name, form in _MEMBERS.items():
        pairs += form.write(name, row[name])
    return line(ARTIFACT, pairs)


def artifact_row(one: Line) -> Row:
    """The artifact in a line; refuses every line that `artifact_line` would not write."""
    try:
        if one.kind != ARTIFACT:
            raise exports.refused(f"no line of this stream has the type {one.kind!r}")
        members = Members(members_of(one.body))
        row = {name: form.read(name, members) for name, form in _MEMBERS.items()}
        if any(value is None for value in row.values()) or artifact_line(row) != one.body:
            raise exports.refused("the line is not what an export writes")
    except Failure as failure:
        raise at_line(failure, one.number) from None
    return row


def check_artifact(workspace_id: str, row: Row, number: int) -> None:
    """Refuse bytes that are not those of the artifact, before any of them is stored."""
    sha256 = hashlib.sha256(row["body"]).digest()
    if sha256 != row["sha256"]:
        raise at_line(exports.refused("is not the digest of the bytes", "sha256"), number)
    if artifact_id(workspace_id, sha256, row["media_type"], row["role"]) != row["artifact_id"]:
        raise at_line(exports.refused("is not the id of these bytes", "artifact_id"), number)
