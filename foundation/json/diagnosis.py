"""The slow scan that names what is wrong with a refused document, and where."""

import json
import re

from foundation.json.errors import InvalidJson

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LITERAL = re.compile(r"true|false|null")
_NOT_A_NUMBER = re.compile(r"-?Infinity|NaN")
_SURROGATE = re.compile("[\ud800-\udfff]")
_STRING = json.JSONDecoder()


def diagnose(raw: bytes, depth_max: int) -> InvalidJson:
    """Return the first thing that is wrong with `raw`, which the strict parser refused."""
    scan = _Scan(raw.decode(errors="surrogateescape"), depth_max)
    try:
        scan.document()
    except InvalidJson as error:
        return error
    return InvalidJson("", "is not valid JSON")


class _Scan:
    """A recursive descent over the text; bytes that are not UTF-8 show as lone surrogates."""

    def __init__(self, text: str, depth_max: int) -> None:
        self.text = text
        self.depth_max = depth_max
        self.at = 0

    def document(self) -> None:
        self.space()
        self.value(0)
        if self.at != len(self.text):
            raise self.expected("the end of the document")

    def value(self, depth: int) -> None:
        match self.text[self.at : self.at + 1]:
            case "{":
                self.enter(depth)
                self.members(depth + 1)
            case "[":
                self.enter(depth)
                self.items(depth + 1)
            case '"':
                self.string()
            case _:
                self.scalar()
        self.space()

    def enter(self, depth: int) -> None:
        if depth >= self.depth_max:
            raise InvalidJson("", f"is nested too deeply: at most {self.depth_max} levels")
        self.at += 1
        self.space()

    def members(self, depth: int) -> None:
        seen: set[str] = set()
        while not self.skip("}"):
            if seen and not self.skip(","):
                raise self.expected("',' or '}'")
            if self.text[self.at : self.at + 1] != '"':
                raise self.expected("a member name in double quotes")
            key = self.string()
            self.space()
            if key in seen:
                raise InvalidJson(key, "is a duplicate key")
            seen.add(key)
            try:
                if not self.skip(":"):
                    raise self.expected("':'")
                self.value(depth)
            except InvalidJson as error:
                raise error.under(key) from None

    def items(self, depth: int) -> None:
        index = 0
        while not self.skip("]"):
            if index and not self.skip(","):
                raise self.expected("',' or ']'")
            try:
                self.value(depth)
            except InvalidJson as error:
                raise error.under(index) from None
            index += 1

    def string(self) -> str:
        start = self.at
        try:
            value, self.at = _STRING.raw_decode(self.text, start)
        except json.JSONDecodeError as error:
            words = error.msg.removesuffix(" at")
            words = words[:1].lower() + words[1:]
            raise InvalidJson("", f"{words} at byte {self.offset(error.pos)}") from None
        if found := _SURROGATE.search(self.text, start, self.at):
            raise InvalidJson("", f"is not valid UTF-8 at byte {self.offset(found.start())}")
        if _SURROGATE.search(value):
            raise InvalidJson("", "holds half of a surrogate pair, which is not a character")
        return value

    def scalar(self) -> None:
        if found := _NOT_A_NUMBER.match(self.text, self.at):
            raise InvalidJson("", f"{found.group()} is not a JSON number")
        found = _LITERAL.match(self.text, self.at) or _NUMBER.match(self.text, self.at)
        if not found:
            raise self.expected("a value")
        self.at = found.end()

    def skip(self, mark: str) -> bool:
        if not self.text.startswith(mark, self.at):
            return False
        self.at += 1
        self.space()
        return True

    def space(self) -> None:
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def expected(self, what: str) -> InvalidJson:
        if self.at >= len(self.text):
            return InvalidJson("", f"the document ends where {what} is expected")
        if _SURROGATE.match(self.text, self.at):
            return InvalidJson("", f"is not valid UTF-8 at byte {self.offset(self.at)}")
        return InvalidJson("", f"expected {what} at byte {self.offset(self.at)}")

    def offset(self, position: int) -> int:
        return len(self.text[:position].encode(errors="surrogateescape"))
