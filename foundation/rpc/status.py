"""`Failure` on the wire: `google.rpc.Status` with one `ErrorInfo`, and back."""

import grpc
from counterfoil.types.v1 import error_reason_pb2 as reasons
from google.protobuf import any_pb2

from foundation.errors import DOMAIN, Failure, name_of, reason_of, surface_of
from foundation.google import error_details_pb2, status_pb2

DETAILS_KEY = "grpc-status-details-bin"
_PATH = "path"
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_TRANSPORT_REASONS = {
    grpc.StatusCode.DEADLINE_EXCEEDED: reasons.ERROR_REASON_DEADLINE_EXCEEDED,
    grpc.StatusCode.UNAVAILABLE: reasons.ERROR_REASON_UNAVAILABLE,
    grpc.StatusCode.CANCELLED: reasons.ERROR_REASON_UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED: reasons.ERROR_REASON_TOO_LARGE,
}
"""Statuses that the transport itself raises, without our details."""
TRANSPORT = "transport"
"""Metadata of an INTERNAL failure that the other side did not raise: nobody knows what happened.
Idempotent calls are repeated a few times; it is no outage that would be waited for."""
_UNEXPLAINED = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)


def code_of(failure: Failure) -> grpc.StatusCode:
    """The gRPC status code of a failure."""
    return _CODES[surface_of(failure.reason).grpc_code]


def details_of(failure: Failure) -> bytes:
    """The serialized `google.rpc.Status` that travels in the trailing metadata."""
    info = error_details_pb2.ErrorInfo(
        reason=name_of(failure.reason),
        domain=DOMAIN,
        metadata={**failure.metadata, **({_PATH: failure.path} if failure.path else {})},
    )
    packed = any_pb2.Any()
    packed.Pack(info)
    status = status_pb2.Status(
        code=surface_of(failure.reason).grpc_code, message=failure.message, details=[packed]
    )
    return status.SerializeToString()


def failure_of(error: grpc.aio.AioRpcError) -> Failure:
    """The failure that a server raised, or that the transport caused."""
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS_KEY and isinstance(value, bytes):
            found = _from_details(value)
            if found is not None:
                return found
    reason = _TRANSPORT_REASONS.get(error.code(), reasons.ERROR_REASON_INTERNAL)
    name = error.code().name.lower()
    metadata = {TRANSPORT: name} if error.code() in _UNEXPLAINED else None
    return Failure(reason, error.details() or name, metadata=metadata)


def _from_details(raw: bytes) -> Failure | None:
    status = status_pb2.Status.FromString(raw)
    info = error_details_pb2.ErrorInfo()
    for detail in status.details:
        if detail.Unpack(info) and info.domain == DOMAIN:
            metadata = dict(info.metadata)
            path = metadata.pop(_PATH, "")
            return Failure(reason_of(info.reason), status.message, path=path, metadata=metadata)
    return None
