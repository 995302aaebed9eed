"""A client under test: a program that speaks for one client library, over JSON lines.

Every program reads lines `{"op": …, "args": {…}}` and answers each with one line: `{"value": …}`
or `{"error": {"code": …, "message": …, "request_id": …}}`. Its environment holds no module of ours,
so what it knows of us is what any application knows. `README.md` lists the operations.
"""

import asyncio
import json
import os
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Event = dict[str, Any]

_ANSWER_SECONDS = 40

KINDS: Mapping[str, str] = {
    "400": "invalid",
    "INVALID_ARGUMENT": "invalid",
    "FAILED_PRECONDITION": "invalid",
    "401": "unauthenticated",
    "UNAUTHENTICATED": "unauthenticated",
    "404": "not found",
    "NOT_FOUND": "not found",
    "409": "conflict",
    "ABORTED": "conflict",
    "ALREADY_EXISTS": "conflict",
}
"""What an HTTP status and a gRPC code have in common."""


class Refused(Exception):
    """The server refused a request."""

    def __init__(self, code: str, message: str, request_id: str | None) -> None:
        super().__init__(f"{code}: {message}")
        self.kind = KINDS.get(code, code)
        self.message = message
        self.request_id = request_id


class Program:
    """A running driver."""

    def __init__(self, command: Sequence[str], cwd: Path, more: Mapping[str, str]) -> None:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        self._process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**kept, **more},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    async def call(self, op: str, **args: Any) -> Any:
        """The value that an operation gives; raises Refused."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"op": op, "args": args}) + "\n")
        self._process.stdin.flush()
        line = await asyncio.to_thread(self._lines.get, timeout=_ANSWER_SECONDS)
        assert line, f"the client program ended with {self._process.poll()} in {op}"
        answer = json.loads(line)
        if "error" in answer:
            error = answer["error"]
            raise Refused(str(error["code"]), error["message"], error.get("request_id"))
        return answer["value"]

    def stop(self) -> None:
        """Ends the program."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")


class Client:
    """The operations, under names; `rest` says whether errors carry request ids."""

    def __init__(self, program: Program, *, rest: bool) -> None:
        self._program = program
        self.rest = rest

    async def do(self, op: str, **args: Any) -> Any:
        """Any operation."""
        return await self._program.call(op, **args)

    async def session(self, name: str, *tools: str) -> str:
        """A new session of a new agent with these custom tools; its id."""
        agent = await self.do("agent_create", name=name, tools=tools)
        environment = await self.do("environment_create", name=name)
        made = await self.do(
            "session_create", agent_id=agent["id"], environment_id=environment["id"]
        )
        return made["id"]

    async def send(self, session_id: str, *events: Mapping[str, Any]) -> list[Event]:
        """Sends events in one request: `message`, `result` (with `text`), `interrupt`."""
        return await self.do("send", session_id=session_id, events=events)

    async def until(self, type: str, *, stop: str | None = None) -> list[Event]:
        """The next events of the open stream up to one of this type (and stop reason)."""
        seen: list[Event] = []
        while True:
            event = await self.do("stream_next")
            assert event is not None, [one["type"] for one in seen]
            seen.append(event)
            if event["type"] == type and stop in (None, event["stop_reason"]["type"]):
                return seen

    async def history(self, session_id: str, limit: int = 1000) -> list[Event]:
        """Every event, by pages of `limit`."""
        return await self.do("events_list", session_id=session_id, limit=limit)
