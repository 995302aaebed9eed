"""Sessions as lines of JSON: what authorities write out and take in again.

A line is one row: `{"type":"transcript.entry","v":1,…}`, its members in one order and spelling, so
that a row has exactly one line. What is sealed at rest is open in a line. Every stream ends with a
line that counts and digests the lines before it.
"""

from foundation.exports.forms import (
    BASE64,
    BOOL,
    HEX,
    INT,
    JSON,
    TEXT,
    TIME,
    UTF8,
    BytesForm,
    Form,
    Members,
    Salted,
)
from foundation.exports.lines import LINE_BYTES_MAX, Line, refused
from foundation.exports.streams import Begin, chunks, received
from foundation.exports.tables import Sealed, TablePart, declared, restore

__all__ = [
    "BASE64",
    "BOOL",
    "HEX",
    "INT",
    "JSON",
    "LINE_BYTES_MAX",
    "TEXT",
    "TIME",
    "UTF8",
    "Begin",
    "BytesForm",
    "Form",
    "Line",
    "Members",
    "Salted",
    "Sealed",
    "TablePart",
    "chunks",
    "declared",
    "received",
    "refused",
    "restore",
]
