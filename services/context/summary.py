"""Writes the summary that stands for covered history: extracts, nothing invented. Pure.

A summary is made of sections. Each builds on the section of the checkpoint before, so nothing is
summarized twice, and is bounded: the newest material stays, the first request always does. What a
model wrote instead is taken only when it has the same sections and is complete.
"""

import re
from collections.abc import Iterable, Sequence

import msgspec

from foundation.projections import Text
from services.context.reducer import Item, block_head

POLICY = 1
"""Version of these rules."""

HEADINGS = ("Goals", "Constraints", "Decisions", "Open work", "Files and ids", "Results")
"""Sections in their order."""

_SHARES = (30, 15, 25, 12, 8, 10)
_LINE_CODE_POINTS = 600
_LINES_MAX = 400
_MODEL_BYTES_MIN = 200

_INTRODUCTION = (
    "The beginning of this conversation was replaced by this summary to make room. What it names "
    "can be trusted; what it does not say is not known here any more."
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_CONSTRAINT = re.compile(
    r"\b(must|never|always|only|do not|don't|cannot|may not|without|at most|at least|no more than|"
    r"required?|forbidden|make sure|ensure|avoid)\b",
    re.IGNORECASE,
)
_OPEN = re.compile(
    r"\b(next|todo|to do|remaining|still|pending|open|later|will|going to|need to|follow up)\b",
    re.IGNORECASE,
)
_NAMED = re.compile(
    r"(?:[\w.-]+/)+[\w.-]+|\b[\w-]+\.(?:[a-z]{1,4}\d?)\b|\b[a-z]{2,12}_[0-9A-Za-z]{6,40}\b"
)


class Sections(msgspec.Struct, array_like=True, frozen=True):
    """Lines of each section, oldest first."""

    goals: list[str] = []
    constraints: list[str] = []
    decisions: list[str] = []
    open_work: list[str] = []
    named: list[str] = []
    results: list[str] = []

    def all(self) -> tuple[list[str], ...]:
        """The sections in the order of `HEADINGS`."""
        return (
            self.goals,
            self.constraints,
            self.decisions,
            self.open_work,
            self.named,
            self.results,
        )


_SECTIONS = msgspec.msgpack.Decoder(Sections)


def decode(stored: bytes) -> Sections:
    """Sections as a checkpoint keeps them."""
    return _SECTIONS.decode(stored) if stored else Sections()


def encode(sections: Sections) -> bytes:
    """Sections as a checkpoint keeps them."""
    return msgspec.msgpack.encode(sections)


def extended(before: Sections, items: Sequence[Item], archive_tool: str) -> Sections:
    """The sections with what further items say. `archive_tool`: the tool by which the model can
    read results again; empty for none."""
    goals, constraints = list(before.goals), list(before.constraints)
    decisions, results = list(before.decisions), list(before.results)
    named = list(before.named)
    for item in items:
        texts = list(_texts(item))
        named += [found for text in texts for found in _NAMED.findall(text)]
        if item.kind == "input":
            goals += map(_line, texts)
            constraints += _matching(_CONSTRAINT, texts)
        elif item.kind == "answer":
            decisions += map(_line, texts)
            named += [f for use in _uses(item) for f in _NAMED.findall(use)]
        elif item.kind == "results":
            results += _results(item, archive_tool)
    return Sections(
        _distinct(goals),
        _distinct(constraints),
        _distinct(decisions),
        _open_work(before, items),
        _distinct(named),
        _distinct(results),
    )


def bounded(sections: Sections, bytes_max: int) -> Sections:
    """The sections in so many bytes of JSON: the newest lines of each, and the first goal."""
    kept: list[list[str]] = []
    for lines, share in zip(sections.all(), _SHARES, strict=True):
        kept.append(_newest(lines, bytes_max * share // 100, keeps_first=not kept))
    return Sections(*kept)


def written(sections: Sections) -> str:
    """The text that the model reads."""
    parts = [_INTRODUCTION]
    for heading, lines in zip(HEADINGS, sections.all(), strict=True):
        parts.append(f"## {heading}\n" + ("\n".join(f"- {line}" for line in lines) or "- none"))
    return "\n\n".join(parts)


def model_text(text: str) -> str | None:
    """What a model wrote, as it is shown; None unless it has every section, in order and with
    something in it."""
    where, ends = list[int](), list[int]()
    for heading in HEADINGS:
        found = re.search(rf"^## {re.escape(heading)}[ \t]*$", text, re.MULTILINE)
        if found is None or (where and found.start() < where[-1]):
            return None
        where.append(found.start())
        ends.append(found.end())
    bodies = [
        text[end:following] for end, following in zip(ends, [*where[1:], len(text)], strict=True)
    ]
    if not all(body.strip() for body in bodies) or len(text.encode()) < _MODEL_BYTES_MIN:
        return None
    return f"{_INTRODUCTION}\n\n{text[where[0] :].strip()}"


def instruction(bytes_max: int) -> str:
    """What a model is told that writes a summary."""
    headings = "\n".join(f"## {heading}" for heading in HEADINGS)
    return (
        "Do not go on with the task now. Summarize this conversation for yourself: the summary "
        "replaces it, and whatever it leaves out is lost. Keep the user's goals and constraints in "
        "their words, decisions with their reasons, what is still open, every file, id and value "
        "that is needed again, and what results said. Say plainly what is uncertain. Write exactly "
        f"these sections, in this order, with at least one line each, in at most {bytes_max} "
        f"bytes:\n\n{headings}"
    )


def _texts(item: Item) -> Iterable[str]:
    for block in item.blocks:
        head = block_head(block)
        if head.type == "text" and head.text:
            text = _decoded(bytes(head.text))
            if text.strip():
                yield text


def _decoded(raw: bytes) -> str:
    """A JSON string; one that no system would take (half a surrogate pair) as it is written."""
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.DecodeError:
        return raw[1:-1].decode(errors="replace")


class _Use(msgspec.Struct):
    type: str = ""
    input: msgspec.Raw = msgspec.Raw()


_USE = msgspec.json.Decoder(_Use)


def _uses(item: Item) -> Iterable[str]:
    for block in item.blocks:
        use = _USE.decode(block)
        if use.type == "tool_use":
            yield bytes(use.input).decode(errors="replace")


def _results(item: Item, archive_tool: str) -> Iterable[str]:
    for result in item.results:
        said = " ".join(
            msgspec.json.decode(part.raw, type=str)
            for part in result.parts
            if isinstance(part, Text)
        )
        failed = "failed: " if result.is_error else ""
        where = f' ({archive_tool}, ref "{result.operation_id}")' if archive_tool else ""
        yield f"{failed}{_line(said, 160)}{where}"


def _open_work(before: Sections, items: Sequence[Item]) -> list[str]:
    """What the newest answers say is still to be done; what was open before, while nothing new is
    said."""
    answers = [text for item in items if item.kind == "answer" for text in _texts(item)]
    found = _matching(_OPEN, answers[-4:])
    return _distinct(found) if found else list(before.open_work)


def _matching(pattern: re.Pattern[str], texts: Iterable[str]) -> list[str]:
    return [
        _line(sentence)
        for text in texts
        for sentence in _SENTENCE.split(text)
        if pattern.search(sentence)
    ]


def _line(text: str, code_points: int = _LINE_CODE_POINTS) -> str:
    one = " ".join(text.split())
    return one if len(one) <= code_points else one[: code_points - 1].rstrip() + "…"


def _distinct(lines: Sequence[str]) -> list[str]:
    """The lines without earlier repetitions of later ones, and no more than can ever be shown."""
    newest_first = dict.fromkeys(line for line in reversed(lines) if line)
    distinct = list(newest_first)[::-1]
    return [*distinct[:1], *distinct[1:][-_LINES_MAX:]]


def _newest(lines: Sequence[str], bytes_max: int, *, keeps_first: bool) -> list[str]:
    kept: list[str] = []
    room = bytes_max
    first = lines[0] if keeps_first and lines else None
    if first is not None:
        first = _line(first, max(40, bytes_max // 8))
        room -= _cost(first)
    for line in reversed(lines[1:] if first is not None else lines):
        room -= _cost(line)
        if room < 0:
            break
        kept.append(line)
    return [*([first] if first is not None else []), *reversed(kept)]


def _cost(line: str) -> int:
    """Bytes of a line in a JSON string, with what stands before and behind it."""
    return len(msgspec.json.encode(line)) - 2 + len("- \\n")
