"""Exports that somebody changed, with sums made for them again."""

import base64
import hashlib
import json
from collections.abc import Callable
from io import BytesIO
from typing import Any

import msgspec

from cli.importing import exported
from cli.importing.checking import check
from cli.importing.lines import Lines as Read

Lines = list[bytes]
Change = Callable[[Lines], Lines]


def sealed_again(lines: Lines) -> Lines:
    """The lines with counts and digests made for them, as somebody who changes a file can."""
    made, part, count, whole = Lines(), hashlib.sha256(), 0, hashlib.sha256()
    for line in lines:
        type_ = json.loads(line)["type"]
        if type_.endswith(".end"):
            of_all = type_ == "export.end"
            sums = (len(made), whole) if of_all else (count, part)
            line = (
                f'{{"type":"{type_}","v":1,"lines":{sums[0]},"sha256":"{sums[1].hexdigest()}"}}\n'
            ).encode()
            part, count = hashlib.sha256(), 0
        else:
            part.update(line)
            count += 1
        whole.update(line)
        made.append(line)
    return made


def changed(kind: str, old: bytes, new: bytes) -> Change:
    """The first line of a type that has these bytes, with others in their place."""

    def change(lines: Lines) -> Lines:
        mark = b'"type":"%b"' % kind.encode()
        at = next(n for n, line in enumerate(lines) if mark in line and old in line)
        return [*lines[:at], lines[at].replace(old, new, 1), *lines[at + 1 :]]

    return change


def without(kind: str) -> Change:
    """Without the last line of a type."""

    def change(lines: Lines) -> Lines:
        mark = b'"type":"%b"' % kind.encode()
        at = max(n for n, line in enumerate(lines) if mark in line)
        return [*lines[:at], *lines[at + 1 :]]

    return change


def twice(kind: str) -> Change:
    """With the first line of a type twice."""

    def change(lines: Lines) -> Lines:
        mark = b'"type":"%b"' % kind.encode()
        at = next(n for n, line in enumerate(lines) if mark in line)
        return [*lines[:at], lines[at], *lines[at:]]

    return change


def member(kind: str, name: str, other: Callable[[str], str], having: str = "") -> Change:
    """A text member of the first line of a type that has it (and these bytes), changed."""

    def change(lines: Lines) -> Lines:
        for at, line in enumerate(lines):
            row = json.loads(line)
            if row["type"] == kind and isinstance(row.get(name), str) and having.encode() in line:
                old = f'"{name}":{json.dumps(row[name])}'
                new = f'"{name}":{json.dumps(other(row[name]))}'
                assert old.encode() in line
                made = line.replace(old.encode(), new.encode(), 1)
                return [*lines[:at], made, *lines[at + 1 :]]
        raise AssertionError(f"no {kind} has {name}")

    return change


def flip(value: str) -> str:
    """Another text of the same form: of hexadecimal digits, or an id."""
    return value[:-1] + ("1" if value[-1] == "0" else "0")


def flip_byte(value: str) -> str:
    """The base64 of other bytes."""
    body = bytearray(base64.b64decode(value))
    body[-1] ^= 1
    return base64.b64encode(body).decode()


def packed(place: int) -> Callable[[str], str]:
    """The base64 of a packed record, whose bytes at this place are other ones."""

    def other(value: str) -> str:
        fields: list[Any] = msgspec.msgpack.decode(base64.b64decode(value))
        fields[place] = bytes([fields[place][0] ^ 1]) + fields[place][1:]
        return base64.b64encode(msgspec.msgpack.encode(fields)).decode()

    return other


async def checked(lines: Lines) -> None:
    """Check an export, as an import does before it stores anything."""
    file = BytesIO(b"".join(lines))
    found = exported.read(file)
    await check(Read(file, found), found)
