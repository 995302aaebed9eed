"""The ledger's tables as lines. Leases, erasure and who looked have no meaning elsewhere."""

from collections.abc import Mapping

from foundation.exports import (
    BASE64,
    HEX,
    JSON,
    UTF8,
    BytesForm,
    Salted,
    Sealed,
    TablePart,
    declared,
)
from services.ledger.session_store import identity

LOG = TablePart(
    "ledger.log",
    declared("services.ledger.log_schema", "ledger.log"),
    key_columns=2,
    forms={
        "sealed": Sealed(
            lambda key, row: ("ledger.log", *key, row["position"], row["event_id"]), Salted(JSON)
        ),
        "commitment": HEX,
        "digest": HEX,
        "transcript_digest": HEX,
    },
    condition="position <= {0}",
    page_rows=64,
)

REDACTIONS = TablePart(
    "ledger.redactions",
    declared("services.ledger.log_schema", "ledger.redactions"),
    key_columns=2,
    forms={"seal": Sealed(lambda key, row: ("ledger.redactions", *key, row["position"]), HEX)},
    condition="position <= {0}",
)

_THREAD = TablePart(
    "ledger.thread",
    declared("services.ledger.schema", "ledger.threads"),
    key_columns=2,
    forms={"head_digest": HEX},
    left_out={"lease_stream": None, "lease_expires_at": None},
    # Nobody is to blame for an owner that stayed behind (2 is EXCUSED).
    instead={"ended": "CASE WHEN lease_stream IS NULL THEN ended ELSE 2::smallint END"},
)


def _sealed(column: str) -> Sealed:
    return Sealed(lambda key, row: identity(column, key[0], key[1]), BASE64)


_SESSION = TablePart(
    "ledger.session",
    declared("services.ledger.schema", "ledger.sessions"),
    key_columns=2,
    forms={
        "agent_name": UTF8,
        "pinned": _sealed("pinned"),
        "runtime": _sealed("runtime"),
        "runtime_before": _sealed("runtime_before"),
        "log_digest": HEX,
    },
    left_out={"erasure_offered_at": None, "erased_at": None},
)

THREAD, SESSION = _THREAD.kind, _SESSION.kind


def _part(name: str, forms: Mapping[str, BytesForm], schema: str = "schema") -> TablePart:
    table = declared(f"services.ledger.{schema}", f"ledger.{name}")
    return TablePart(f"ledger.{name}", table, key_columns=2, forms=forms)


STATE = (
    _part("queued", {}, "log_schema"),
    _part("entries", {"digest": HEX}),
    _part("turns", {}),
    _part("rounds", {"answer_digest": HEX}),
    _part("calls", {"name": UTF8, "answer_digest": HEX}),
    _part("commits", {}),
    _part("forks", {"cut_digest": HEX}),
    _THREAD,
    _SESSION,
)
"""What one snapshot shows of everything but the log. The session comes last."""

PARTS = {part.kind: part for part in (LOG, REDACTIONS, *STATE)}
