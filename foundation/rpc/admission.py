"""Who may call what. Public services take workspace keys, internal ones the service credential.

A service is public when one of its methods has a REST binding in the contract, or when it has the
option `workspace_key`, so the contract alone decides. None → UNAUTHENTICATED, the wrong kind →
PERMISSION_DENIED (internal) or UNAUTHENTICATED (public: a service credential belongs to no
workspace).
"""

import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from counterfoil.types.v1 import annotations_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from foundation.errors import Failure
from foundation.google import http_binding

AUTHORIZATION = "authorization"
API_KEY = "x-api-key"
_BEARER = "bearer "


class Principal(Protocol):
    """Who a workspace key belongs to."""

    @property
    def workspace_id(self) -> str:
        """Workspace, `wrkspc_…`."""
        ...

    @property
    def api_key_id(self) -> str:
        """Key id, `apikey_…`."""
        ...


Authenticate = Callable[[str], Awaitable[Principal | None]]
"""Resolves a workspace key; None for one that nobody issued."""


def is_public(service: ServiceDescriptor) -> bool:
    """Whether a service belongs to the public surface: through a REST binding, or by its option."""
    if service.GetOptions().Extensions[annotations_pb2.workspace_key]:
        return True
    return any(m.GetOptions().HasExtension(http_binding) for m in service.methods)


def is_post(method: MethodDescriptor) -> bool:
    """Whether the method is bound to a POST."""
    options = method.GetOptions()
    return bool(options.HasExtension(http_binding) and options.Extensions[http_binding].post)


def credential_of(metadata: Mapping[str, str]) -> str:
    """The credential that a call carries; empty for none."""
    header = metadata.get(AUTHORIZATION, "")
    if header[: len(_BEARER)].lower() == _BEARER:
        token = header[len(_BEARER) :].strip()
        if token:
            return token
    return metadata.get(API_KEY, "")


@dataclass(frozen=True)
class Admission:
    """Decides on calls with the credentials of this deployment."""

    service_key: str
    authenticate: Authenticate
    _service_key: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_service_key", self.service_key.encode())

    async def public(self, metadata: Mapping[str, str]) -> Principal:
        """The caller of a public service; raises UNAUTHENTICATED."""
        credential = credential_of(metadata)
        if not credential or self._is_service_key(credential):
            raise unauthenticated()
        found = await self.authenticate(credential)
        if found is None:
            raise _unauthenticated("the API key is unknown")
        return found

    async def internal(self, metadata: Mapping[str, str]) -> None:
        """Admits a call of an internal service; raises UNAUTHENTICATED or PERMISSION_DENIED."""
        credential = credential_of(metadata)
        if credential and self._is_service_key(credential):
            return
        if credential and await self.authenticate(credential) is not None:
            raise Failure(
                reasons.ERROR_REASON_PERMISSION_DENIED,
                "a workspace key cannot call internal services",
            )
        raise _unauthenticated("send the service credential")

    def _is_service_key(self, credential: str) -> bool:
        return hmac.compare_digest(credential.encode(), self._service_key)


def unauthenticated() -> Failure:
    """A public call came without a workspace's key."""
    return _unauthenticated("send a workspace's API key")


def _unauthenticated(what: str) -> Failure:
    return Failure(reasons.ERROR_REASON_UNAUTHENTICATED, f"not authenticated: {what}")
