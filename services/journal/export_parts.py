"""The journal's tables as lines. What a cut leaves out is told by its parameters; see `cuts`."""

from foundation.exports import BASE64, HEX, JSON, UTF8, Sealed, TablePart, declared
from foundation.exports.cuts import LATER

# {3}: what waits for a client is prepared (1) and has no outcome yet. What was copied from another
# thread has that one's epochs, and no input.
_KNOWN = f"NOT {LATER} AND (%(table)s.attempt_epoch <= {{2}} OR %(table)s.input IS NULL)"
OPERATIONS = TablePart(
    "journal.operation",
    declared("services.journal.schema", "journal.operations"),
    forms={
        "tool_name": UTF8,
        "input": Sealed(lambda key, row: ("operations", *key, row["operation_id"]), JSON),
        "nonce_digest": HEX,
        "request_digest": HEX,
        "answer_digest": HEX,
    },
    condition=_KNOWN % {"table": "operations"},
    instead={
        "state": "CASE WHEN operation_id = ANY({3}::text[]) THEN 1::smallint ELSE state END",
    },
    page_rows=32,
)
_KNOWN_IDS = (
    """
SELECT operation_id FROM journal.operations known
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 AND """
    + _KNOWN % {"table": "known"}
)
OUTCOMES = TablePart(
    "journal.outcome",
    declared("services.journal.schema", "journal.outcomes"),
    forms={
        "raw": Sealed(
            lambda key, row: ("outcomes.raw", *key, row["operation_id"], row["role"]), BASE64
        ),
        "projection": Sealed(
            lambda key, row: ("outcomes.projection", *key, row["operation_id"]), JSON
        ),
    },
    condition=f"operation_id <> ALL({{3}}::text[]) AND operation_id IN ({_KNOWN_IDS})",
    page_rows=16,
)
REDACTIONS = TablePart(
    "journal.redaction",
    declared("services.journal.schema", "journal.redactions"),
    forms={"sealed": Sealed(lambda key, row: ("redactions", *key, row["operation_id"]), BASE64)},
    condition=f"operation_id <> ALL({{3}}::text[]) AND operation_id IN ({_KNOWN_IDS})",
)
PARTS = {part.kind: part for part in (OPERATIONS, OUTCOMES, REDACTIONS)}
"""What stands in lines, by type."""
