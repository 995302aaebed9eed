"""What a client may not send, whatever the state of its session. Pure; raises with JSON paths."""

from collections.abc import Sequence

from counterfoil.ledger.v1 import content_pb2

from foundation.errors import Failure, Reason, invalid

_LATER = {
    "user_tool_result": "user.tool_result is not supported yet: no environment of this version has "
    "calls that a node of yours answers",
    "user_define_outcome": "user.define_outcome is not supported yet: say what you want in a "
    "user.message",
}
_MESSAGE_BLOCKS = ("text", "image", "document")


def check_supported(path: str, variant: str) -> None:
    """Refuse event types that belong to the contract and have no effect here yet."""
    text = _LATER.get(variant)
    if text is not None:
        raise Failure(Reason.ERROR_REASON_UNSUPPORTED, text, path=f"{path}.type")


def check_message(path: str, content: Sequence[content_pb2.ContentBlock]) -> None:
    """Refuse blocks that a message does not take."""
    for index, block in enumerate(content):
        where = f"{path}.content.{index}"
        kind = block.WhichOneof("block") or "nothing"
        _refuse_redacted(where, kind)
        if kind not in _MESSAGE_BLOCKS:
            allowed = ", ".join(_MESSAGE_BLOCKS)
            raise invalid(f"{where}.type", f"a message takes blocks of {allowed}, got {kind}")
        _refuse_file(where, block)
        if kind == "text" and not block.text.text:
            raise invalid(f"{where}.text", "must be at least 1 character, got 0")


def check_texts(path: str, content: Sequence[content_pb2.ContentBlock], message: str) -> None:
    """Refuse everything but text."""
    for index, block in enumerate(content):
        kind = block.WhichOneof("block") or "nothing"
        _refuse_redacted(f"{path}.content.{index}", kind)
        if kind != "text":
            raise invalid(f"{path}.content.{index}.type", f"{message}, got {kind}")


def check_result(path: str, content: Sequence[content_pb2.ContentBlock]) -> None:
    """Refuse what a tool result cannot show: the bytes have to be here, because nobody fetches
    them."""
    for index, block in enumerate(content):
        where = f"{path}.content.{index}"
        _refuse_redacted(where, block.WhichOneof("block") or "nothing")
        _refuse_file(where, block)
        if _source(block) == "url":
            raise Failure(
                Reason.ERROR_REASON_UNSUPPORTED,
                "a tool result's bytes are not fetched: send them (base64)",
                path=f"{where}.source.type",
            )


def check_not_empty(path: str, content: Sequence[content_pb2.ContentBlock]) -> None:
    """Refuse texts of no character."""
    for index, block in enumerate(content):
        if not block.text.text:
            where = f"{path}.content.{index}.text"
            raise invalid(where, "must be at least 1 character, got 0")


def refuse_thread(path: str, is_given: bool) -> None:
    """Answers are routed by the id of the call alone."""
    if is_given:
        raise invalid(
            f"{path}.session_thread_id", "is set by the server and not accepted in a request"
        )


def _refuse_redacted(where: str, kind: str) -> None:
    if kind == "redacted":
        raise invalid(f"{where}.type", "redacted blocks are sent by the server only")


def _refuse_file(where: str, block: content_pb2.ContentBlock) -> None:
    if _source(block) == "file":
        raise Failure(
            Reason.ERROR_REASON_UNSUPPORTED,
            "files are not supported yet: send the bytes (base64) or an address (url)",
            path=f"{where}.source.type",
        )


def _source(block: content_pb2.ContentBlock) -> str | None:
    """Where the bytes of an image or a document come from."""
    if block.HasField("image"):
        return block.image.source.WhichOneof("source")
    return block.document.source.WhichOneof("source") if block.HasField("document") else None
