"""Rows of the public log on their way in, and the head of a log."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple, Self

from counterfoil.types.v1.reference_pb2 import Head

from foundation import json
from foundation.storage import Record

KIND_EVENT = 1
KIND_QUEUED = 2
KIND_MARK = 3

HEAD_COLUMNS = ("log_position", "log_digest", "last_processed_at")
"""Columns of a session's row that hold the head of its log: bigint, bytea, timestamptz or null."""


class LogHead(NamedTuple):
    """The end of a log, as the session's row keeps it. An empty log has position 0."""

    position: int = 0
    digest: bytes = b""
    last_processed_at: datetime | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any] | Record) -> Self:
        """The head in a row that has the `HEAD_COLUMNS`."""
        return cls(*(row[column] for column in HEAD_COLUMNS))


class Row(NamedTuple):
    """A planned row of the log. `body` is not stored openly; a mark has none."""

    position: int
    kind: int
    event_id: str
    event_type: str
    processed_at: datetime | None
    refers_position: int | None
    sealed: bytes | None
    commitment: bytes
    digest: bytes
    transcript_head: Head | None
    body: bytes

    @property
    def transcript_seq(self) -> int | None:
        """Sequence of the transcript head, if the entry carries one."""
        return None if self.transcript_head is None else self.transcript_head.seq

    @property
    def transcript_digest(self) -> bytes | None:
        """Digest of the transcript head, if the entry carries one."""
        return None if self.transcript_head is None else self.transcript_head.digest

    @property
    def json(self) -> bytes:
        """The public JSON of an event or a queued event, with `processed_at`."""
        return splice(self.body, self.processed_at)


class Planned(NamedTuple):
    """What one transaction appends, and the head that the session's row must then hold."""

    workspace_id: str
    session_id: str
    rows: tuple[Row, ...]
    head: LogHead


def splice(body: bytes, processed_at: datetime | None) -> bytes:
    """A stored body with `processed_at` (UTC, milliseconds, or null) as its last member."""
    if processed_at is None:
        return json.splice(body, "processed_at", b"null")
    text = processed_at.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return json.splice(body, "processed_at", b'"%bZ"' % text.encode())
