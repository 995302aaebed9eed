"""Frames of an event stream out of its bytes, however they are cut. Pure.

The rules are those of HTML's "event stream" format. Only `event` and `data` mean anything here;
the data stay the provider's bytes.
"""

Frame = tuple[str | None, bytes]
"""An event's name (None without one) and its exact data."""

_BOM = b"\xef\xbb\xbf"


class Frames:
    """The frames of one stream."""

    def __init__(self) -> None:
        self._open: list[bytes] = []
        self._event: str | None = None
        self._data: list[bytes] = []
        self._begun = False
        self._after_cr = False

    def feed(self, piece: bytes) -> list[Frame]:
        """Take the next bytes; returns the frames that they complete."""
        found: list[Frame] = []
        for line in self._lines(piece):
            if not line:
                if self._data:
                    found.append((self._event, b"\n".join(self._data)))
                    self._data = []
                self._event = None
                continue
            name, _, value = line.partition(b":")
            if value[:1] == b" ":
                value = value[1:]
            if name == b"data":
                self._data.append(value)
            elif name == b"event":
                self._event = value.decode(errors="replace") or None
        return found

    def _lines(self, piece: bytes) -> list[bytes]:
        """The lines that the piece ends. A line ends with CR, LF or both."""
        if self._after_cr and piece:
            self._after_cr = False
            piece = piece.removeprefix(b"\n")
        lines = piece.splitlines()
        if not lines:
            return []
        ended = piece.endswith((b"\n", b"\r"))
        rest = b"" if ended else lines.pop()
        if lines:
            lines[0] = b"".join([*self._open, lines[0]])
            self._open = []
            self._after_cr = piece.endswith(b"\r")
            if not self._begun:
                self._begun = True
                lines[0] = lines[0].removeprefix(_BOM)
        if rest:
            self._open.append(rest)
        return lines
