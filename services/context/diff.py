"""Where two requests differ first, and which record explains it. Pure.

Two requests of a thread are expected to begin alike: whatever breaks that costs the provider's
prompt cache, and was recorded before it happened. `compare` finds the first difference in the bytes
themselves; `cause_of` names the record, from what requests were made of, without their bytes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, NamedTuple

import msgspec
from counterfoil.context.v1 import snapshots_pb2 as pb

Change = pb.ContextChange.ValueType
Part = pb.RequestPart.ValueType


@dataclass(frozen=True, slots=True)
class Made:
    """What decides a request's bytes: where all of it is equal, one request begins with the other.

    The first three are texts that are equal when the bytes of these parts of the request are.
    """

    parameters: bytes
    system: bytes
    tools: bytes
    profile: tuple[object, ...]
    """Capability profile, and the version of the rules by which history becomes bytes."""
    checkpoint_id: str = ""
    transition_head: tuple[int, bytes] = (0, b"")
    withheld_seq: int = 0
    """The newest transcript entry that takes earlier ones out of the history; 0 for none."""
    purpose: str = "working"


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a request; see RequestPlace."""

    part: Part
    index: int | None = None
    message: int | None = None


class Block(NamedTuple):
    """A content block as it is compared: also whose it is, and where a message begins."""

    role: bytes
    message: int
    begins: bool
    body: bytes

    def is_like(self, other: "Block") -> bool:
        """Whether a provider sees the same, if it saw the same in front of it."""
        return (self.role, self.begins, self.body) == (other.role, other.begins, other.body)


@dataclass(frozen=True, slots=True)
class Parts:
    """A request, taken apart; every piece is exact JSON."""

    body: bytes
    parameters: bytes
    tail: bytes
    """Members behind the messages."""
    system: bytes
    tools: tuple[bytes, ...]
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """What two requests share, and where they differ first: None where they do not, or where one
    only goes on behind the other."""

    place: Place | None
    is_same: bool
    shared_blocks: int
    shared_bytes: int


class _Message(msgspec.Struct):
    role: msgspec.Raw
    content: msgspec.Raw


_OWN_PARTS = ("system", "tools")
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_MESSAGES = msgspec.json.Decoder(list[_Message])


def cause_of(previous: Made, current: Made) -> Change:
    """Why `current` does not begin with what `previous` ends with: the change that comes first in
    the bytes of a request. BUG when nothing was recorded."""
    other_profile = previous.profile != current.profile
    in_order = (
        (previous.parameters != current.parameters and other_profile, pb.CONTEXT_CHANGE_PROFILE),
        (previous.parameters != current.parameters, pb.CONTEXT_CHANGE_PARAMETERS),
        (previous.system != current.system, pb.CONTEXT_CHANGE_SYSTEM),
        (previous.tools != current.tools, pb.CONTEXT_CHANGE_TOOLS),
        (other_profile, pb.CONTEXT_CHANGE_PROFILE),
        (previous.checkpoint_id != current.checkpoint_id, pb.CONTEXT_CHANGE_CHECKPOINT),
        (previous.transition_head != current.transition_head, pb.CONTEXT_CHANGE_TRANSITION),
        (previous.withheld_seq != current.withheld_seq, pb.CONTEXT_CHANGE_WITHHELD),
        (previous.purpose != current.purpose, pb.CONTEXT_CHANGE_SUMMARY),
    )
    return next((change for differs, change in in_order if differs), pb.CONTEXT_CHANGE_BUG)


def take_apart(body: bytes) -> Parts:
    """A request's parts. Raises msgspec.DecodeError for what is no request."""
    members = [(name, bytes(raw)) for name, raw in _MEMBERS.decode(body).items()]
    found = dict(members)
    behind = [name for name, _ in members].index("messages") if "messages" in found else len(found)
    return Parts(
        body=body,
        parameters=_joined(pair for pair in members[:behind] if pair[0] not in _OWN_PARTS),
        tail=_joined(members[behind + 1 :]),
        system=found.get("system", b""),
        tools=tuple(map(bytes, _LIST.decode(found.get("tools", b"[]")))),
        blocks=tuple(_blocks(_MESSAGES.decode(found.get("messages", b"[]")))),
    )


def without_messages(parts: Parts) -> Parts:
    """What is known of a request whose history was redacted: everything in front of it."""
    return replace(parts, body=b"", blocks=())


def compare(one: Parts, other: Parts) -> Difference:
    """Where two requests differ first."""
    shared_bytes = _shared_bytes(one.body, other.body)
    place = _place_before_messages(one, other)
    if place is not None:
        return Difference(place, False, 0, shared_bytes)
    shared = _shared_blocks(one.blocks, other.blocks)
    if shared < min(len(one.blocks), len(other.blocks)):
        place = Place(pb.REQUEST_PART_MESSAGES, shared, one.blocks[shared].message)
    elif len(one.blocks) == len(other.blocks) and one.tail != other.tail:
        place = Place(pb.REQUEST_PART_PARAMETERS)
    return Difference(place, one.body == other.body, shared, shared_bytes)


def made_of(parts: Parts, profile: tuple[object, ...], **recorded: Any) -> Made:
    """What a request was made of, from its parts and what was recorded of it."""
    tools = b",".join(parts.tools)
    return Made(parts.parameters, parts.system, tools, profile, **recorded)


def change(found: Difference, one: Made, other: Made) -> Change:
    """The cause of a difference."""
    if found.is_same:
        return pb.CONTEXT_CHANGE_SAME
    if found.place is None:
        return pb.CONTEXT_CHANGE_APPENDED
    if found.place.part == pb.REQUEST_PART_PARAMETERS and one.parameters == other.parameters:
        return pb.CONTEXT_CHANGE_PARAMETERS  # `stream`, which stands behind the messages
    return cause_of(one, other)


def _joined(members: Iterable[tuple[str, bytes]]) -> bytes:
    return b",".join(b'"%b":%b' % (name.encode(), raw) for name, raw in members)


def _blocks(messages: Sequence[_Message]) -> list[Block]:
    found: list[Block] = []
    for number, message in enumerate(messages):
        role, content = bytes(message.role), bytes(message.content)
        bodies = map(bytes, _LIST.decode(content)) if content.startswith(b"[") else [content]
        found += [Block(role, number, at == 0, body) for at, body in enumerate(bodies)]
    return found


def _place_before_messages(one: Parts, other: Parts) -> Place | None:
    if one.parameters != other.parameters:
        return Place(pb.REQUEST_PART_PARAMETERS)
    if one.system != other.system:
        return Place(pb.REQUEST_PART_SYSTEM)
    if one.tools != other.tools:
        pairs = enumerate(zip_longest(one.tools, other.tools))
        first = next(index for index, (left, right) in pairs if left != right)
        return Place(pb.REQUEST_PART_TOOLS, first)
    return None


def _shared_blocks(one: Sequence[Block], other: Sequence[Block]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    differing = (index for index, (left, right) in pairs if not left.is_like(right))
    return next(differing, min(len(one), len(other)))


def _shared_bytes(one: bytes, other: bytes) -> int:
    """Length of the common beginning, by halves: comparing slices is much faster than bytes."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
