"""What stands for an answer of the model that was redacted, or that cannot be shown. Pure.

Nothing of what the model wrote stays: texts, thinking with its signatures, calls of provider-run
tools with their results. Calls that results answer have to stay, else no provider takes the
request: their blocks keep place, id and name, and get a fixed input.
"""

from collections.abc import Iterable, Sequence

import msgspec

from foundation.outcomes import REDACTED_INPUT, REDACTED_INPUT_TEXT

_SAID = msgspec.json.encode({"type": "text", "text": REDACTED_INPUT_TEXT})
_NOTHING = b'{"type":"text","text":""}'
"""Keeps the place of a block; never sent, as no blank text is."""


class _Block(msgspec.Struct):
    type: str = ""
    id: msgspec.Raw = msgspec.Raw()
    name: msgspec.Raw = msgspec.Raw()
    tool_use_id: msgspec.Raw = msgspec.Raw()


_BLOCK = msgspec.json.Decoder(_Block)


def stand_in(blocks: Sequence[bytes]) -> tuple[bytes, ...]:
    """As many blocks, calls where calls were."""
    found: list[bytes] = []
    is_said = False
    for block in map(_read, blocks):
        if block.type == "tool_use":
            found.append(_call(block))
        else:
            found.append(_NOTHING if is_said else _SAID)
            is_said = True
    return tuple(found)


def shared_ids(blocks: Iterable[bytes]) -> set[bytes]:
    """Ids of the provider-run tools that an answer calls, or shows a result of. Call and result may
    stand in two answers; one without the other is refused."""
    found: set[bytes] = set()
    for block in map(_read, blocks):
        if block.type != "tool_use":
            found |= {bytes(id) for id in (block.id, block.tool_use_id) if bytes(id)}
    return found


def _read(block: bytes) -> _Block:
    try:
        return _BLOCK.decode(block)
    except msgspec.DecodeError:
        return _Block()


def _call(block: _Block) -> bytes:
    members = b'"id":%b,"name":%b' % (bytes(block.id), bytes(block.name))
    return b'{"type":"tool_use",%b,"input":%b}' % (members, REDACTED_INPUT)
