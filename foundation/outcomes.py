"""Texts of calls without a result of their own: one wording for events, journal and transcript."""

from collections.abc import Mapping
from types import MappingProxyType

NOT_RUN_TEXT = "The call was interrupted before it ran. Nothing was executed."
"""Closed while nobody had started it."""

MAY_HAVE_RUN_TEXT = "The call was interrupted and may have run. Its outcome is unknown."
"""Closed after somebody had started it, or might have."""

DENIED_TEXT = "The call was denied and did not run."
"""Refused by a confirmation."""


REDACTED_INPUT_TEXT = "(this message was redacted)"
"""Stands for an input, a note or an answer that was redacted."""

REDACTED_INPUT = b'{"redacted":"This input was redacted and cannot be read any more."}'
"""Stands for the input of a call that was redacted: exact JSON."""

_REASON_CHARS_MAX = 2_000


def cut_reason(reason: str) -> str:
    """As much of the reason for a denial as is kept."""
    return reason[:_REASON_CHARS_MAX]


def denied_text(reason: str = "") -> str:
    """What the model is told about a denial; `reason` is the client's `deny_message`."""
    return f"{DENIED_TEXT} Reason given: {cut_reason(reason)}" if reason else DENIED_TEXT


PROJECTION_FAILED = "projection_failed"
PROJECTION_TIMEOUT = "projection_timeout"
PROJECTION_TOO_LARGE = "projection_too_large"
WITHHELD_UNREADABLE = "withheld_unreadable"
OUTCOME_UNKNOWN = "outcome_unknown"
REDACTED = "redacted"
LEGACY_UNMAPPABLE = "legacy_unmappable"

FAILURE_TEXTS: Mapping[str, str] = MappingProxyType(
    {
        PROJECTION_FAILED: "The call ran, but its result cannot be shown here.",
        PROJECTION_TIMEOUT: "The call ran, but preparing its result for display took too long.",
        OUTCOME_UNKNOWN: MAY_HAVE_RUN_TEXT,
        PROJECTION_TOO_LARGE: "The call ran, but its result is too large to be shown here.",
        WITHHELD_UNREADABLE: "The call ran. What is shown of its result cannot be read any more.",
        LEGACY_UNMAPPABLE: "The call ran elsewhere. Its result cannot be shown here.",
        REDACTED: "The call ran. Its result was redacted and cannot be read any more.",
    }
)
"""Code of a stored failure projection → what the model reads. Only the code is stored."""

_FAILURE_TEXT_OTHER = "The call's result cannot be shown here."


def failure_text(code: str) -> str:
    """What the model reads for a failure projection, also for a code of a later version."""
    return FAILURE_TEXTS.get(code, _FAILURE_TEXT_OTHER)
