"""What an answer asks for: its public segments, its tool calls, and which of them may run. Pure.

It reads stored blocks, so every owner of a turn comes to the same result. A model's mistakes are
the model's to fix: a call that cannot run gets a text that tells it why.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
from counterfoil.ledger.v1 import session_events_pb2
from counterfoil.types.v1 import runtime_pb2, usage_pb2

from foundation.json import InvalidJson, check, members
from services.runner.adapter.assemble import model_usage
from services.runner.adapter.blocks import INVALID_INPUT

PAUSED = "pause_turn"
"""Stop reason of an answer that is to be sent back as it is, and goes on."""

CUT = "max_tokens"
"""Stop reason after which the last call may be incomplete although its input reads well."""

REFUSED = "refusal"
"""Stop reason of a model that does not want to answer."""

WINDOW_FULL = "model_context_window_exceeded"
"""Stop reason after which no request could bring the results of calls."""

_ENDS = frozenset(("end_turn", "stop_sequence", REFUSED))
"""Stop reasons that say that nothing was called."""

_NAME_SHOWN_MAX = 128
_NAMES_CHARS_MAX = 4000


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One `tool_use` block; `malformed` says for the model what is wrong with its input, if any."""

    block_index: int
    provider_id: str
    name: str
    input: bytes
    malformed: str | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """What becomes one public event: a run of adjacent text blocks, or one thinking block."""

    first_block_index: int
    kind: Literal["message", "thinking"]
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What happens to a call: its tool, if there is one, and an empty refusal if it may run."""

    binding: runtime_pb2.ToolBinding | None
    refusal: str = ""


class _Block(msgspec.Struct):
    type: msgspec.Raw = msgspec.Raw()
    id: msgspec.Raw = msgspec.Raw()
    name: msgspec.Raw = msgspec.Raw()
    text: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()


_BLOCK = msgspec.json.Decoder(_Block)
_STRING = msgspec.json.Decoder(str)


def stop_reason_of(envelope: bytes) -> str:
    """The stop reason in an answer's envelope; empty when it has none."""
    return _string(members(envelope).get("stop_reason", msgspec.Raw())) or ""


def stop_details_of(envelope: bytes) -> session_events_pb2.StopDetails:
    """What an answer's envelope says about a refusal: category and explanation, as far as known."""
    found = members(envelope).get("stop_details", msgspec.Raw())
    said = members(found) if bytes(found).startswith(b"{") else {}
    return session_events_pb2.StopDetails(
        type="refusal",
        category=_string(said.get("category", msgspec.Raw())),
        explanation=_string(said.get("explanation", msgspec.Raw())),
    )


def usage_of(envelope: bytes) -> usage_pb2.ModelUsage:
    """The tokens that an answer's envelope reports, as they were counted when it came."""
    found = members(envelope).get("usage", msgspec.Raw())
    return model_usage(members(found) if bytes(found).startswith(b"{") else {})


def text_of(blocks: Sequence[bytes]) -> str:
    """All text of an answer, one paragraph for each run of adjacent text blocks."""
    return "\n\n".join("".join(one.texts) for one in segments_of(blocks) if one.texts)


def calls_of(blocks: Sequence[bytes]) -> list[ToolCall]:
    """The calls that somebody here must answer, in use order; provider-run tools are not calls."""
    return [
        _call(index, block)
        for index, raw in enumerate(blocks)
        if (block := _block(raw)) is not None and _string(block.type) == "tool_use"
    ]


def segments_of(blocks: Sequence[bytes]) -> list[Segment]:
    """What the public sees of an answer besides its calls, in block order."""
    segments: list[Segment] = []
    run: list[str] = []
    for index, raw in enumerate(blocks):
        block = _block(raw)
        type_ = _string(block.type) if block is not None else None
        text = _string(block.text) if block is not None and type_ == "text" else None
        if text is not None:
            run.append(text)
            continue
        _end_run(segments, run, index)
        if type_ in ("thinking", "redacted_thinking"):
            segments.append(Segment(index, "thinking"))
    _end_run(segments, run, len(blocks))
    return segments


def judge(
    calls: Sequence[ToolCall], stop_reason: str, tools: Sequence[runtime_pb2.ToolBinding]
) -> list[Verdict]:
    """One verdict for each call, in order.

    Calls that contradict the answer's stop reason are refused, so that the model can repeat them,
    and never end a session.
    """
    offered = {
        tool.name: tool for tool in tools if tool.owner != runtime_pb2.TOOL_OWNER_PROVIDER_NATIVE
    }
    uses = Counter(call.provider_id for call in calls)
    verdicts: list[Verdict] = []
    for call in calls:
        last = call is calls[-1]
        refusal = (
            _contradiction(stop_reason, last=last)
            or _ambiguous(uses[call.provider_id])
            or _unknown(call.name, offered)
            or (call.malformed or "")
        )
        verdicts.append(Verdict(offered.get(call.name), refusal))
    return verdicts


def _call(index: int, block: _Block) -> ToolCall:
    raw = bytes(block.input) or b"{}"
    return ToolCall(
        block_index=index,
        provider_id=_string(block.id) or "",
        name=_string(block.name) or "",
        input=raw,
        malformed=_malformed(raw),
    )


def _malformed(raw: bytes) -> str | None:
    if not raw.startswith(b"{"):
        return "The call was not made: its input is not a JSON object."
    found = members(raw)
    if list(found) != [INVALID_INPUT]:
        return None
    text = _string(found[INVALID_INPUT])
    if text is None:
        return None
    try:
        check(text.encode())
    except InvalidJson as error:
        return f"The call was not made: its input is not valid JSON: {error}."
    return "The call was not made: its input is not a JSON object."


def _contradiction(stop_reason: str, *, last: bool) -> str:
    if stop_reason in _ENDS:
        return (
            f"The call was not made: the answer ended with stop reason {stop_reason}, which says"
            " that nothing is called. Make the call again if it is still wanted."
        )
    if stop_reason == WINDOW_FULL:
        return "The call was not made: the model's window is full, so its result could not be read."
    if last and stop_reason == CUT:
        return (
            f"The call was not made: the answer was cut off ({stop_reason}) before the call was"
            " complete. Make it again, with a shorter input if it was long."
        )
    return ""


def _ambiguous(uses: int) -> str:
    if uses < 2:
        return ""
    return "The call was not made: several calls of the answer have the same id."


def _unknown(name: str, offered: dict[str, runtime_pb2.ToolBinding]) -> str:
    if name in offered:
        return ""
    shown = name if len(name) <= _NAME_SHOWN_MAX else name[:_NAME_SHOWN_MAX] + "…"
    if not offered:
        return f"The call was not made: there is no tool {shown!r}; no tools are offered."
    names = ", ".join(offered)
    if len(names) > _NAMES_CHARS_MAX:
        names = names[:_NAMES_CHARS_MAX].rpartition(", ")[0] + ", …"
    return f"The call was not made: there is no tool {shown!r}. The tools are: {names}."


def _end_run(segments: list[Segment], run: list[str], end: int) -> None:
    if run:
        segments.append(Segment(end - len(run), "message", tuple(run)))
        run.clear()


def _block(raw: bytes) -> _Block | None:
    """The members of a block; None for one that is no object."""
    return _BLOCK.decode(raw) if raw.lstrip().startswith(b"{") else None


def _string(raw: msgspec.Raw) -> str | None:
    data = bytes(raw)
    return _STRING.decode(data) if data.startswith(b'"') else None
