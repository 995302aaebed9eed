"""What tests ask the process besides the API: gates, recorded requests, windows, reset."""

import re
from urllib.parse import parse_qs

import msgspec

from offline_model.gates import Gates
from offline_model.records import Recorder
from offline_model.windows import Windows

_JSON = "application/json"
_GATE = re.compile(r"/control/(release|close|holds)/(.+)")
_REQUEST = re.compile(r"/control/requests/(\d+)")
WAIT_SECONDS_MAX = 60.0


class Control:
    """Handles ``/control/…``; every answer is (status, content type, body)."""

    def __init__(self, gates: Gates, recorder: Recorder, windows: Windows) -> None:
        self._gates = gates
        self._recorder = recorder
        self._windows = windows

    async def handle(self, method: str, path: str, query: str) -> tuple[int, str, bytes]:
        """One control request; waiting ones return early when what they wait for is there."""
        options = {name: values[-1] for name, values in parse_qs(query).items()}
        gate = _GATE.fullmatch(path)
        if gate:
            return await self._gate(method, gate[1], gate[2], options)
        request = _REQUEST.fullmatch(path)
        if method == "GET" and request:
            body = self._recorder.body(int(request[1]))
            return _missing("no such request") if body is None else (200, _JSON, body)
        if method == "GET" and path == "/control/requests":
            records = await self._recorder.wait(
                int(options.get("wait", 0)), options.get("finished") == "1", _timeout(options)
            )
            return _json({"requests": records})
        if method == "POST" and path == "/control/reset":
            self._gates.release_all()
            self._recorder.reset()
            self._windows.reset()
            return _json({"reset": True})
        if path == "/control/window":
            return self._window(method, options)
        return _missing("no such control operation")

    def _window(self, method: str, options: dict[str, str]) -> tuple[int, str, bytes]:
        model = options.get("model", "")
        if method == "POST":
            tokens = options.get("tokens", "")
            if not tokens.isdecimal() or not int(tokens):
                return 400, _JSON, msgspec.json.encode({"error": "tokens: a number from 1"})
            self._windows.put(model, int(tokens))
        return _json({"model": model, "window_tokens": self._windows.of(model)})

    async def _gate(
        self, method: str, verb: str, name: str, options: dict[str, str]
    ) -> tuple[int, str, bytes]:
        if verb == "holds" and method == "GET":
            at_least = int(options.get("wait", 0))
            return _json(await self._gates.waited(name, at_least, _timeout(options)))
        if verb == "release" and method == "POST":
            return _json({"name": name, "held": self._gates.release(name)})
        if verb == "close" and method == "POST":
            self._gates.close(name)
            return _json(self._gates.state(name))
        return _missing("no such control operation")


def _timeout(options: dict[str, str]) -> float:
    return min(float(options.get("timeout_s", 10)), WAIT_SECONDS_MAX)


def _json(value: object) -> tuple[int, str, bytes]:
    return 200, _JSON, msgspec.json.encode(value)


def _missing(why: str) -> tuple[int, str, bytes]:
    return 404, _JSON, msgspec.json.encode({"error": why})
