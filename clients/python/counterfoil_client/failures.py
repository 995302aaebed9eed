"""What can go wrong with a call."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from grpclib.const import Status
from grpclib.exceptions import GRPCError, StreamTerminatedError

_AWAY = (Status.UNAVAILABLE, Status.CANCELLED, Status.DEADLINE_EXCEEDED)


class RefusedError(Exception):
    """The server refused a call; `code` is the gRPC status, the text says what was wrong and where.

    The same call will be refused again, unless something else changes.
    """

    def __init__(self, code: Status, text: str) -> None:
        super().__init__(f"{code.name}: {text}")
        self.code = code
        self.text = text


class UnavailableError(Exception):
    """The server was not reachable, or went away before it answered.

    Whether a call that changes something took effect is not known: repeat it under the
    idempotency key that it was made with.
    """


@asynccontextmanager
async def translated() -> AsyncGenerator[None]:
    """Failures of the transport as those of this module."""
    try:
        yield
    except GRPCError as error:
        text = error.message or ""
        if error.status in _AWAY:
            raise UnavailableError(f"{error.status.name}: {text}") from error
        raise RefusedError(error.status, text) from error
    except (StreamTerminatedError, OSError) as error:
        raise UnavailableError(str(error) or type(error).__name__) from error
