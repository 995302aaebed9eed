"""The message envelope and its SSE events, byte for byte. Pure."""

import msgspec
from msgspec import Raw, Struct

from offline_model.blocks import AnswerBlock, Pieces, build, emit, pack
from offline_model.requests import Request
from offline_model.scripts import Step
from offline_model.seals import token
from offline_model.tokens import BYTES_PER_TOKEN, Counted


class Frame(Struct):
    """One SSE event; ``delta`` marks content_block_delta, by which faults count."""

    data: bytes
    delta: bool = False


class Answer(Struct):
    """A whole answer, before it is decided how it travels."""

    id: str
    model: str
    blocks: list[AnswerBlock]
    stop_reason: str | None
    step: Step
    usage: dict[str, bytes]

    def whole(self) -> bytes:
        """The body of the unstreamed answer."""
        content = b"[%s]" % b",".join(block.whole for block in self.blocks)
        return emit(self._envelope(content, self._stop(), self.usage))

    def frames(self) -> list[Frame]:
        """The events of the streamed answer, in order, with the API's one early ping."""
        blocks = self.blocks
        if self.step.unknown_delta and blocks:
            blocks = [msgspec.structs.replace(b, deltas=list(b.deltas)) for b in blocks]
            pack(next((b for b in blocks if b.deltas), blocks[0]))
        begun = {**self.usage, "output_tokens": b"1"}
        no_stop = {"stop_reason": b"null", "stop_sequence": b"null", "stop_details": b"null"}
        message = emit(self._envelope(b"[]", no_stop, begun))
        frames = [event("message_start", message=message)]
        for index, block in enumerate(blocks):
            at = str(index).encode()
            frames.append(event("content_block_start", index=at, content_block=block.start))
            if index == 0:
                frames.append(event("ping"))
            frames += [event("content_block_delta", index=at, delta=d) for d in block.deltas]
            frames.append(event("content_block_stop", index=at))
        extra = {k: bytes(v) for k, v in self.step.message_delta.items()}
        scripted = self.step.usage
        counted = {k: v for k, v in self.usage.items() if k != "service_tier" or k in scripted}
        frames.append(
            event("message_delta", delta=emit(self._stop()), usage=emit(counted), **extra)
        )
        frames.append(event("message_stop"))
        return frames

    def _stop(self) -> dict[str, bytes]:
        return {
            "stop_reason": msgspec.json.encode(self.stop_reason),
            "stop_sequence": msgspec.json.encode(self.step.stop_sequence),
            "stop_details": bytes(self.step.stop_details),
        }

    def _envelope(
        self, content: bytes, stop: dict[str, bytes], usage: dict[str, bytes]
    ) -> dict[str, bytes]:
        return {
            "id": msgspec.json.encode(self.id),
            "type": b'"message"',
            "role": b'"assistant"',
            "model": msgspec.json.encode(self.model),
            "content": content,
            **stop,
            "usage": emit(usage),
            **{k: bytes(v) for k, v in self.step.message.items()},
        }


def event(name: str, **members: bytes) -> Frame:
    """One event with the API's framing: its name, and the same name as ``type``."""
    encoded = name.encode()
    data = emit({"type": msgspec.json.encode(name), **members})
    return Frame(b"event: %s\ndata: %s\n\n" % (encoded, data), name == "content_block_delta")


def custom_event(name: str, data: Raw) -> Frame:
    """An event with any name and any JSON as its data."""
    return Frame(b"event: %s\ndata: %s\n\n" % (name.encode(), bytes(data)))


def answer(
    request: Request, step: Step, message_id: str, counted: Counted, prefix_bytes: int
) -> Answer:
    """The answer of ``step``; ``prefix_bytes``: message bytes that an earlier request shared."""
    seed = token(request.model, request.region)
    blocks = build(step.content, Pieces(step.chunks, step.chunk_chars), seed)
    stop_reason = step.stop_reason
    if isinstance(stop_reason, msgspec.UnsetType):
        calls = any(block.type == "tool_use" for block in blocks)
        stop_reason = "tool_use" if calls else "end_turn"
    return Answer(
        id=message_id,
        model=request.model,
        blocks=blocks,
        stop_reason=stop_reason,
        step=step,
        usage=_usage(request, blocks, step, counted, prefix_bytes),
    )


def _usage(
    request: Request, blocks: list[AnswerBlock], step: Step, counted: Counted, prefix_bytes: int
) -> dict[str, bytes]:
    total = counted.input_tokens
    read = counted.prefix(prefix_bytes) if request.caches else 0
    created = total - read if request.caches else 0
    written = sum(len(block.whole) for block in blocks)
    numbers = {
        "input_tokens": total - read - created,
        "cache_creation_input_tokens": created,
        "cache_read_input_tokens": read,
        "output_tokens": max(1, -(-written // BYTES_PER_TOKEN)),
    }
    usage = {name: str(number).encode() for name, number in numbers.items()}
    usage["service_tier"] = b'"standard"'
    usage.update({k: bytes(v) for k, v in step.usage.items()})
    return usage
