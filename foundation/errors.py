"""The one error path: a reason of the contract's list, a text for people, and where the fault is.

Services raise `Failure`; the RPC layer carries it as `google.rpc.ErrorInfo`, clients get a
`Failure` again, and the gateway renders it as a body. Status codes are chosen by the contract
(`error_reason.proto`) alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from counterfoil.types.v1 import error_reason_pb2 as pb

Reason = pb.ErrorReason

DOMAIN = "counterfoil"
_PREFIX = "ERROR_REASON_"


@dataclass(frozen=True, slots=True)
class Surface:
    """How a reason appears on gRPC and HTTP."""

    grpc_code: int
    http_status: int
    http_type: str
    should_retry: str
    error_code: str


class Failure(Exception):
    """A call failed for a reason of the contract's list.

    `message` says what was wrong and what to do; `path` is the JSON path of a bad field;
    `metadata` holds small facts for programs (`epoch_max`). None of them may hold content or
    secrets.
    """

    def __init__(
        self,
        reason: "Reason.ValueType",
        message: str,
        *,
        path: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.path = path
        self.metadata = dict(metadata or {})

    @property
    def text(self) -> str:
        """The message behind the path of the field it is about."""
        return f"{self.path}: {self.message}" if self.path else self.message

    def __repr__(self) -> str:
        return f"Failure({name_of(self.reason)}, {self.text!r})"


def name_of(reason: "Reason.ValueType") -> str:
    """The reason's name without its prefix, as it travels."""
    return Reason.Name(reason).removeprefix(_PREFIX)


def reason_of(name: str) -> "Reason.ValueType":
    """The reason with this name; INTERNAL for one that this version does not know."""
    try:
        return Reason.Value(_PREFIX + name)
    except ValueError:
        return pb.ERROR_REASON_INTERNAL


@cache
def surface_of(reason: "Reason.ValueType") -> Surface:
    """How `reason` appears on gRPC and HTTP, as the contract says."""
    options = Reason.DESCRIPTOR.values_by_number[reason].GetOptions()
    mapping = options.Extensions[pb.error_mapping]
    return Surface(
        grpc_code=mapping.grpc_code,
        http_status=mapping.http_status,
        http_type=mapping.http_type,
        should_retry=mapping.should_retry,
        error_code=mapping.error_code,
    )


def invalid(path: str, message: str) -> Failure:
    """A field is wrong: `path` is its JSON path."""
    return Failure(pb.ERROR_REASON_INVALID_FIELD, message, path=path)


def not_found(what: str, id: str) -> Failure:
    """`what` (for example "session") with this id does not exist for the caller."""
    return Failure(pb.ERROR_REASON_NOT_FOUND, f"{what} {id} was not found")


def wrong_state(message: str) -> Failure:
    """The resource's state forbids the call."""
    return Failure(pb.ERROR_REASON_WRONG_STATE, message)


def fenced(epoch: int, epoch_max: int) -> Failure:
    """The writer's epoch is below the highest one seen."""
    return Failure(
        pb.ERROR_REASON_FENCED,
        f"epoch {epoch} is below {epoch_max}",
        metadata={"epoch_max": str(epoch_max)},
    )


def deleted(thread_id: str) -> Failure:
    """The thread has a tombstone."""
    return Failure(pb.ERROR_REASON_DELETED, f"thread {thread_id} is deleted")
