"""What the model must be shown: worked out from stored entries, results and records, in a second
way. Nothing here is shared with the reducer, the fold, the planner or the materializer."""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from counterfoil.journal.v1.journal_pb2 import Projection
from counterfoil.transcript.v1 import transcript_pb2 as pb

from foundation import artifacts, canonical, outcomes
from foundation.projections import Artifact
from tests.laws.projection.authorities import Row
from tests.services.context.histories import ABANDONED, ANSWER, RESULTS, WITHHELD

Json = dict[str, Any]
Place = tuple[int, int]
"""A transcript entry, and its part: the block of a call; -1 for an input."""

IMAGE_MAX = 3_932_160
IMAGE_BUDGET = 12 * 2**20
OMITTED = "(something was left out here to make the request fit)"
UNREADABLE_INPUT = "(this message cannot be shown)"
EMPTY = {"type": "text", "text": "(an empty message)"}
GONE = "(the stored copy is not kept any more)"

_MARKER = re.compile(r"<m\d+\.[az]>")


def markers(value: Any) -> set[str]:
    """The markers in a value or in bytes."""
    if isinstance(value, bytes):
        return set(_MARKER.findall(value.decode(errors="replace")))
    return set(_MARKER.findall(json.dumps(value)))


def messages(
    entries: Sequence[pb.Entry],
    projections: Mapping[str, Projection],
    rows: Sequence[Row],
    blobs: Mapping[str, bytes],
    unreadable: frozenset[Place] = frozenset(),
) -> list[Json]:
    """The messages of the history that these entries and records leave."""
    return [one for _, one in placed(entries, projections, rows, blobs, unreadable)]


def placed(
    entries: Sequence[pb.Entry],
    projections: Mapping[str, Projection],
    rows: Sequence[Row],
    blobs: Mapping[str, bytes],
    unreadable: frozenset[Place] = frozenset(),
) -> list[tuple[int, Json]]:
    """The same with the entry of each message; 0 for the summary."""
    return _Expected(projections, rows, blobs, unreadable).messages(entries)


def skipped_ids(entries: Sequence[pb.Entry]) -> set[str]:
    """Entries that others take out of history."""
    skipping = [entry for entry in entries if entry.kind in (ABANDONED, WITHHELD)]
    return {id for entry in skipping for id in entry.content.skipped_entry_ids}


def gone(
    entries: Sequence[pb.Entry], projections: Mapping[str, Projection], rows: Sequence[Row]
) -> set[str]:
    """Markers of what was replaced, and is in nothing that replaced it."""
    lost, forms = set[str](), dict[Place, set[str]]()
    for entry in entries:
        if entry.content.blocks:
            forms[entry.seq, -1] = {m for block in entry.content.blocks for m in markers(block)}
        for reference in entry.content.results:
            place = (entry.seq, reference.block_index)
            forms[place] = markers(projections[reference.operation_id].body)
    for row in rows:
        one = row.transition
        if one is not None:
            after = _left(entries[one.seq - 1], one.replacement, one.part)
            lost |= forms[one.seq, one.part] - after
            forms[one.seq, one.part] = after
    return lost


def _left(entry: pb.Entry, replacement: bytes, part: int) -> set[str]:
    if part != -1:
        return markers(replacement)
    omitted = json.loads(replacement).get("blocks", [])
    blocks = entry.content.blocks
    return {m for i, block in enumerate(blocks) if i not in omitted for m in markers(block)}


class _Expected:
    def __init__(
        self,
        projections: Mapping[str, Projection],
        rows: Sequence[Row],
        blobs: Mapping[str, bytes],
        unreadable: frozenset[Place],
    ) -> None:
        self.projections = projections
        self.blobs = blobs
        self.unreadable = unreadable
        self.newest: dict[Place, bytes] = {}
        self.checkpoint = None
        for row in rows:
            if row.transition is not None:
                one = row.transition
                self.newest[one.seq, one.part] = one.replacement
            else:
                self.checkpoint = row.checkpoint
        self.image_bytes = 0

    def messages(self, entries: Sequence[pb.Entry]) -> list[tuple[int, Json]]:
        skipped = skipped_ids(entries)
        found: list[tuple[int, Json]] = []
        covered = 0
        if self.checkpoint is not None:
            covered = self.checkpoint.through_seq
            block = json.loads(self.checkpoint.block)
            found.append((0, {"role": "user", "content": [block]}))
            if self.checkpoint.anchor_seq:
                anchor = entries[self.checkpoint.anchor_seq - 1]
                if anchor.id not in skipped:
                    found.append((anchor.seq, self._said(anchor)))
        answer: list[Json] = []
        for entry in entries[covered:]:
            if entry.id in skipped or entry.kind in (ABANDONED, WITHHELD):
                continue
            if entry.kind == ANSWER:
                answer = [json.loads(block) for block in entry.content.blocks]
                if said := _answer(answer):
                    found.append((entry.seq, {"role": "assistant", "content": said}))
            elif entry.kind == RESULTS:
                found.append((entry.seq, self._results(entry, answer)))
            else:
                found.append((entry.seq, self._said(entry)))
        return found

    def _said(self, entry: pb.Entry) -> Json:
        blocks = [json.loads(block) for block in entry.content.blocks]
        place = (entry.seq, -1)
        if place in self.unreadable:
            blocks = [{"type": "text", "text": UNREADABLE_INPUT}]
        elif place in self.newest:
            left_out = json.loads(self.newest[place])["blocks"]
            for index in left_out:
                blocks[index] = {"type": "text", "text": OMITTED}
        return {"role": "user", "content": [b for b in blocks if not _is_blank(b)] or [EMPTY]}

    def _results(self, entry: pb.Entry, answer: Sequence[Json]) -> Json:
        shown: list[Json] = []
        seen: set[str] = set()
        for reference in entry.content.results:
            id = answer[reference.block_index]["id"]
            if id in seen:
                continue
            seen.add(id)
            place = (entry.seq, reference.block_index)
            body = self.newest.get(place, self.projections[reference.operation_id].body)
            if place in self.unreadable:
                body = b'{"code":"withheld_unreadable","kind":"failure","v":1}'
            shown.append(self._result(id, json.loads(body)))
        trailing = [json.loads(block) for block in entry.content.trailing_blocks]
        return {"role": "user", "content": shown + [b for b in trailing if not _is_blank(b)]}

    def _result(self, id: str, body: Json) -> Json:
        is_error = body.get("is_error", False)
        parts: list[Json] = [{"kind": "text", "text": ""}]
        match body["kind"]:
            case "text":
                parts[0]["text"] = body["text"]
            case "json":
                parts[0]["text"] = canonical.encode(body["value"]).decode()
            case "content":
                parts = body["parts"]
            case "denied":
                parts[0]["text"], is_error = outcomes.denied_text(body.get("reason", "")), True
            case _:
                parts[0]["text"], is_error = outcomes.failure_text(body["code"]), True
        blocks = [block for part in parts if not _is_blank(block := self._part(part))]
        content = {"content": blocks} if blocks else {}
        error = {"is_error": True} if is_error else {}
        return {"type": "tool_result", "tool_use_id": id, **content, **error}

    def _part(self, part: Json) -> Json:
        if part["kind"] == "text":
            return {"type": "text", "text": part["text"]}
        is_image = part["media_type"].startswith("image/")
        fits = part["size"] <= IMAGE_MAX and self.image_bytes + part["size"] <= IMAGE_BUDGET
        if not is_image or not fits:
            named = Artifact(
                part["artifact_id"],
                part["media_type"],
                part["size"],
                part["sha256"],
                part.get("w", 0),
                part.get("h", 0),
            )
            return {"type": "text", "text": artifacts.line(named)}
        self.image_bytes += part["size"]
        if part["artifact_id"] not in self.blobs:
            return {"type": "text", "text": GONE}
        data = base64.b64encode(self.blobs[part["artifact_id"]]).decode()
        source = {"type": "base64", "media_type": part["media_type"], "data": data}
        return {"type": "image", "source": source}


def _answer(blocks: Sequence[Json]) -> list[Json]:
    kept: list[Json] = []
    seen: set[str] = set()
    for block in blocks:
        if block["type"] == "tool_use":
            if block["id"] in seen:
                continue
            seen.add(block["id"])
        if not _is_blank(block):
            kept.append(block)
    while kept and kept[-1]["type"] == "thinking":
        kept.pop()
    return kept


def _is_blank(block: Json) -> bool:
    return block["type"] == "text" and (not block["text"] or block["text"].isspace())


def complaint(shown: Sequence[Json]) -> str:
    """What is wrong with the pairs of calls and results in these messages; empty for nothing."""
    open_ids: list[str] = []
    for place, message in enumerate(shown):
        blocks = message["content"]
        if not blocks:
            return f"message {place} has no content"
        answered = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        if answered != open_ids:
            return f"message {place} answers {answered}, called was {open_ids}"
        open_ids = [b["id"] for b in blocks if b["type"] == "tool_use"]
        if len(set(open_ids)) != len(open_ids):
            return f"message {place} calls twice under one id"
        if open_ids and message["role"] != "assistant":
            return f"message {place} is a call of the user"
    return f"nobody answers {open_ids}" if open_ids else ""
