"""The transcript's tables as lines, and the rows that are derived from them."""

from counterfoil.transcript.v1 import transcript_pb2
from google.protobuf.message import DecodeError

from foundation import exports
from foundation.digests import SALT_BYTES
from foundation.exports import BASE64, HEX, UTF8, Members, Salted, Sealed, TablePart, declared
from foundation.exports.forms import embeddable, raw_items
from foundation.exports.lines import Pair
from foundation.exports.tables import Row


class _Content:
    """Serialized content: its blocks as the JSON that they are, the rest of it as base64."""

    def write(self, name: str, value: bytes) -> list[Pair]:
        content = transcript_pb2.EntryContent.FromString(value)
        blocks = list(content.blocks)
        content.ClearField("blocks")
        rest = content.SerializeToString(deterministic=True)
        if not all(map(embeddable, blocks)) or _whole(blocks, rest) != value:
            return BASE64.write(f"{name}_base64", value)
        return [
            (f"{name}_blocks", b"[%b]" % b",".join(blocks)),
            *BASE64.write(f"{name}_rest", rest),
        ]

    def read(self, name: str, members: Members) -> bytes | None:
        if members.has(name):
            return BASE64.read(name, members)
        if members.has(f"{name}_base64"):
            return BASE64.read(f"{name}_base64", members)
        blocks = raw_items(f"{name}_blocks", members)
        try:
            return _whole(list(blocks), BASE64.read(f"{name}_rest", members) or b"")
        except DecodeError:
            raise exports.refused("is no serialized content", f"{name}_rest") from None


def _whole(blocks: list[bytes], rest: bytes) -> bytes:
    content = transcript_pb2.EntryContent.FromString(rest)
    del content.blocks[:]
    content.blocks.extend(blocks)
    return content.SerializeToString(deterministic=True)


ENTRIES = TablePart(
    "transcript.entry",
    declared("services.transcript.schema", "transcript.entries"),
    forms={
        "content": Sealed(lambda key, row: ("entries", *key, row["seq"]), Salted(_Content())),
        "commitment": HEX,
        "digest": HEX,
    },
    condition="seq <= {0}",
    page_rows=16,
)
REDACTIONS = TablePart(
    "transcript.redaction",
    declared("services.transcript.schema", "transcript.redactions"),
    forms={"seal": Sealed(lambda key, row: ("redactions", *key, row["seq"]), HEX)},
    condition="seq <= {0}",
)
NAMES = TablePart(
    "",
    declared("services.transcript.schema", "transcript.id_map"),
    forms={
        "provider_tool_use_id": Sealed(
            lambda key, row: ("id_map", *key, row["seq"], row["block_index"]), UTF8
        )
    },
)
PARTS = {part.kind: part for part in (ENTRIES, REDACTIONS)}
"""What stands in lines, by type."""


def names_of(row: Row) -> list[Row]:
    """The rows of the id map that belong to an entry."""
    if row["content"] is None:
        return []
    content = transcript_pb2.EntryContent.FromString(row["content"][SALT_BYTES:])
    return [
        {
            "seq": row["seq"],
            "block_index": one.block_index,
            "operation_id": one.operation_id,
            "event_id": one.event_id,
            "provider_tool_use_id": one.provider_tool_use_id.encode(),
        }
        for one in content.mappings
    ]
