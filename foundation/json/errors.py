"""The one error of the JSON codec: what is wrong, and where in the document."""

_SHOWN_MAX = 100
"""Characters of a client's own text that an error repeats; the rest is cut, errors stay short."""


def clip(text: str) -> str:
    """Return at most 100 characters of `text`, with an ellipsis when something was cut."""
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…"


class InvalidJson(ValueError):
    """Untrusted JSON (or a query string) is refused.

    `path` names the place as a client sees it, members and indexes joined by dots
    (`events.0.content.1.text`), empty for the document itself; `message` says what is wrong there.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(path, message)
        self.path = path
        self.message = message

    def under(self, key: str | int) -> "InvalidJson":
        """Put `key` in front of the path, in place: readers know only their own part of it."""
        step = clip(key) if isinstance(key, str) else str(key)
        self.path = f"{step}.{self.path}" if self.path else step
        return self

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message
