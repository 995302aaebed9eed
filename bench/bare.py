"""The bare server: a raw ASGI application on the same HTTP server, with nothing behind it.

`python -m bench.bare PORT`.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, cast

import uvicorn
import uvloop

BARE_READY = "bare server listens"

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_FRAME = b"event: bench\nid: 1\ndata: " + b'{"x":"%b"}' % (b"y" * 570) + b"\n\n"
_MESSAGE = (
    b'{"id":"msg_1","type":"message","role":"assistant","model":"bench","content":[],'
    b'"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}'
)
_ANSWER = b"".join(
    b"event: %b\ndata: {%b}\n\n" % (name, b'"type":"' + name + b'"' + rest)
    for name, rest in (
        (b"message_start", b',"message":' + _MESSAGE),
        (b"content_block_start", b',"index":0,"content_block":{"type":"text","text":""}'),
        (b"content_block_delta", b',"index":0,"delta":{"type":"text_delta","text":"ok"}'),
        (b"content_block_stop", b',"index":0'),
        (
            b"message_delta",
            b',"delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":1}',
        ),
        (b"message_stop", b""),
    )
)


class Bare:
    """`POST /` answers at once, `GET /stream` is an event stream, `POST /publish` feeds all."""

    def __init__(self) -> None:
        self._streams: set[asyncio.Queue[bytes]] = set()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["path"] == "/stream":
            await self._stream(receive, send)
            return
        if scope["path"] == "/v1/messages":
            await self._answer(receive, send)
            return
        body = (await receive()).get("body", b"")
        if scope["path"] == "/publish":
            for _ in range(int(body)):
                for queue in self._streams:
                    queue.put_nowait(_FRAME)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

    async def _answer(self, receive: Receive, send: Send) -> None:
        """A provider that reads nothing of what it is asked."""
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": _ANSWER})

    async def _stream(self, receive: Receive, send: Send) -> None:
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        self._streams.add(queue)
        feeding = asyncio.create_task(self._feed(queue, send))
        try:
            while (await receive())["type"] != "http.disconnect":
                pass
        finally:
            self._streams.discard(queue)
            feeding.cancel()

    async def _feed(self, queue: asyncio.Queue[bytes], send: Send) -> None:
        await send({"type": "http.response.body", "body": b": hello\n\n", "more_body": True})
        while True:
            frame = await queue.get()
            await send({"type": "http.response.body", "body": frame, "more_body": True})


class _Server(uvicorn.Server):
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        sys.stdout.write(BARE_READY + "\n")
        sys.stdout.flush()


def main() -> None:
    """Serves until SIGINT."""
    config = uvicorn.Config(
        cast(Any, Bare()),
        port=int(sys.argv[1]),
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    uvloop.run(_Server(config).serve())


if __name__ == "__main__":
    main()
