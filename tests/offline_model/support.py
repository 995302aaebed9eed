"""A running offline model, and what tests say to it."""

import json
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import anthropic
import httpx2

ROOT = Path(__file__).parents[2]
MODEL = "any-model"


@dataclass
class Server:
    """The process, its URL, and clients of it."""

    url: str
    process: subprocess.Popen[str]
    record: Path | None
    scenarios: Path | None

    @cached_property
    def http(self) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, timeout=30, verify=False)

    @cached_property
    def sdk(self) -> anthropic.Anthropic:
        return anthropic.Anthropic(base_url=self.url, api_key="k", max_retries=0)

    def async_client(self) -> anthropic.AsyncAnthropic:
        return anthropic.AsyncAnthropic(base_url=self.url, auth_token="t", max_retries=0)

    def post(self, path: str) -> Any:
        return self.http.post(path).raise_for_status().json()

    def get(self, path: str) -> Any:
        return self.http.get(path).raise_for_status().json()

    def raw(self, body: bytes, path: str = "/v1/messages") -> httpx2.Response:
        headers = {
            "x-api-key": "k",
            "anthropic-version": "2023-06-01",
            "content-type": "application/json",
        }
        return self.http.post(path, content=body, headers=headers)

    def say(self, *messages: Any, **more: Any) -> Any:
        """The unstreamed answer to these messages (bare texts are user messages), as JSON."""
        response = self.raw(json.dumps(request(*messages, **more)).encode())
        return response.json()


@contextmanager
def running(
    record: Path | None = None, scenarios: Path | None = None, windows: Sequence[str] = ()
) -> Generator[Server]:
    """A server that ends with the block."""
    command = [sys.executable, "-m", "offline_model", "--parent-death"]
    if record:
        command += ["--record", str(record)]
    if scenarios:
        command += ["--scenarios", str(scenarios)]
    for window in windows:
        command += ["--window", window]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    with process.stdout as lines:
        word, url = lines.readline().split()
        assert word == "listening"
        try:
            server = Server(url, process, record, scenarios)
            with server.http, server.sdk:
                yield server
        finally:
            process.terminate()
            process.wait(10)


def script(*steps: Any) -> str:
    """The user text that carries these steps."""
    return "offline-script: " + json.dumps(steps)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def result(id: str, content: Any = "done") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content}


def use(id: str, name: str = "t") -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": {}}


def request(*messages: Any, **more: Any) -> dict[str, Any]:
    """A request body; bare texts are user messages."""
    listed = [user(m) if isinstance(m, str) else m for m in messages]
    return {"model": MODEL, "max_tokens": 100, "messages": listed, **more}
