"""Redaction of outcomes, before they are projected: what a deployment's patterns match is never
shown, neither to the model nor to the public.

Patterns come from the file that COUNTERFOIL_REDACTION_FILE names: UTF-8, one regular expression of
Python's `re` a line; empty lines and lines that begin with `#` are skipped. The raw outcome stays
as it was, sealed in the journal, as long as it is kept (`raws`).
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from foundation.digests import digest
from foundation.storage import ConfigurationError

REDACTED = "[redacted]"
"""What stands for a match."""

_DOMAIN = "counterfoil.redaction.v1"
_VERSION_CHARS = 12


class Redactor:
    """Some patterns, and the version that names them."""

    def __init__(self, patterns: Sequence[str]) -> None:
        """Raises ValueError for what is no pattern, and for one that matches empty text."""
        self._patterns = [_compiled(pattern) for pattern in patterns]
        named = digest(_DOMAIN, *[pattern.encode() for pattern in patterns]).hex()
        self.version = named[:_VERSION_CHARS] if patterns else ""
        """12 hex digits that change with the patterns; empty for no patterns."""

    @property
    def is_empty(self) -> bool:
        """Whether it leaves everything as it is."""
        return not self._patterns

    def text(self, value: str) -> str:
        """The text without what matches."""
        for pattern in self._patterns:
            value = pattern.sub(REDACTED, value)
        return value

    def value(self, value: object) -> object:
        """A parsed JSON value, all its strings and keys redacted. Inline bytes stay: no pattern is
        meant for base64. Raises ValueError when two keys become equal."""
        return self._value(value) if self._patterns else value

    def _value(self, value: object) -> object:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._value(item) for item in cast("list[object]", value)]
        if isinstance(value, dict):
            return self._object(cast("dict[str, object]", value))
        return value

    def _object(self, value: dict[str, object]) -> dict[str, object]:
        is_inline = value.get("type") == "base64"
        redacted = {
            self.text(key): member if is_inline and key == "data" else self._value(member)
            for key, member in value.items()
        }
        if len(redacted) != len(value):
            raise ValueError("two keys are equal after redaction")
        return redacted


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is no regular expression: {error}") from None
    if compiled.search(""):
        raise ValueError("matches empty text, so it would match everywhere")
    return compiled


NO_REDACTION = Redactor(())
"""Leaves everything as it is."""


def load(path: Path | None) -> Redactor:
    """The redactor of a pattern file; none for no path. Raises ConfigurationError that names the
    line."""
    if path is None:
        return NO_REDACTION
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"COUNTERFOIL_REDACTION_FILE cannot be read: {error}") from None
    patterns: list[str] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            _compiled(line)
        except ValueError as error:
            where = f"COUNTERFOIL_REDACTION_FILE, {path}, line {number}"
            raise ConfigurationError(f"{where}: {line!r} {error}") from None
        patterns.append(line)
    return Redactor(patterns)
