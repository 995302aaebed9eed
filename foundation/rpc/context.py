"""What a running call knows about itself: who calls, for which workspace, until when."""

import time
from contextvars import ContextVar
from typing import Any

from google.protobuf.message import Message

from foundation import ids


class CallContext:
    """One call on its way through a service; nobody changes it.

    Without a `request_id` it makes one when somebody asks for it. `workspace_id` is empty for
    internal calls: a service credential belongs to no workspace, and internal requests name theirs.
    `deadline` is monotonic seconds, or None. `request` is what the call asks for: log lines take
    ids from it, nothing else.
    """

    __slots__ = ("_request_id", "api_key_id", "deadline", "request", "workspace_id")

    def __init__(
        self,
        request_id: str | None,
        workspace_id: str = "",
        api_key_id: str = "",
        deadline: float | None = None,
        request: object = None,
    ) -> None:
        self._request_id = request_id
        self.workspace_id = workspace_id
        self.api_key_id = api_key_id
        self.deadline = deadline
        self.request = request

    @property
    def request_id(self) -> str:
        """Name of the call in logs and answers, on its whole way; empty outside of one."""
        if self._request_id is None:
            self._request_id = ids.new("request")
        return self._request_id

    def seconds_left(self) -> float | None:
        """Seconds until the deadline, at least 0; None without one."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())


_OUTSIDE = CallContext("")
_current: ContextVar[CallContext] = ContextVar("counterfoil_call", default=_OUTSIDE)


def current() -> CallContext:
    """The call that this task serves. Outside of one: an empty context."""
    return _current.get()


def named() -> dict[str, str]:
    """Ids of the session and the turn that this task's call is about, as far as it names them."""
    request: Any = current().request
    if not isinstance(request, Message):
        return {}
    thread = getattr(getattr(request, "fence", request), "thread", request)
    turn = getattr(request, "scope", request)
    found = {"session_id": _text(thread, "session_id"), "turn_id": _text(turn, "turn_id")}
    return {name: id_ for name, id_ in found.items() if id_}


def _text(holder: object, name: str) -> str:
    value = getattr(holder, name, "")
    return value if isinstance(value, str) else ""


def workspace() -> str:
    """Workspace of the public call that this task serves; fails closed when there is none."""
    found = current().workspace_id
    if not found:
        raise RuntimeError("a public call without a workspace reached a service")
    return found


class serving:  # noqa: N801  (used as a statement: `with serving(call): …`)
    """Makes `call` the current one for a block."""

    __slots__ = ("_call", "_token")

    def __init__(self, call: CallContext) -> None:
        self._call = call

    def __enter__(self) -> CallContext:
        self._token = _current.set(self._call)
        return self._call

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)
