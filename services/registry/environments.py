"""Decides what an environment is: checks a definition, completes it, changes it. Pure.

Times and state are left to the store. Every function raises with the JSON path.
"""

import re
from collections.abc import Mapping

from counterfoil.registry.v1 import environment_pb2 as pb
from counterfoil.types.v1 import annotations_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation import masks
from foundation.errors import Failure, invalid
from foundation.metadata import patch

_MANAGERS = ("apt", "cargo", "gem", "go", "npm", "pip")
_UPDATED = ("name", "config", "description", "metadata", "scope")
_HOST = re.compile(
    r"(\*\.)?([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*"
    r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.?"
)


def new_environment(request: pb.CreateEnvironmentRequest, environment_id: str) -> pb.Environment:
    """The environment that a valid request describes, with every default written out."""
    _check_scope(request.scope)
    environment = pb.Environment(
        id=environment_id, metadata=dict(request.metadata), name=request.name
    )
    if request.HasField("description"):
        environment.description = request.description
    if request.HasField("config"):
        environment.config.CopyFrom(request.config)
    else:
        environment.config.cloud.SetInParent()
    if environment.config.WhichOneof("config") == "cloud":
        _complete(environment.config.cloud)
    return environment


def updated(current: pb.Environment, request: pb.UpdateEnvironmentRequest) -> pb.Environment | None:
    """The environment as the request changes it, or None when nothing would change."""
    named = masks.named(request, _UPDATED)
    _check_scope(request.scope)
    environment = pb.Environment()
    environment.CopyFrom(current)
    if "name" in named and request.HasField("name"):
        environment.name = request.name
    if "description" in named:
        environment.ClearField("description")
        if request.HasField("description"):
            environment.description = request.description
    if "metadata" in named:
        pairs = _patched(current.metadata, request.metadata)
        environment.ClearField("metadata")
        environment.metadata.update(pairs)
    if "config" in named and request.HasField("config"):
        _change(environment.config, request.config)
    return None if environment == current else environment


def _check_scope(scope: pb.EnvironmentScope.ValueType) -> None:
    if scope == pb.ENVIRONMENT_SCOPE_ACCOUNT:
        raise invalid("scope", "must be organization: keys belong to workspaces, not to accounts")


def _patched(found: Mapping[str, str], changes: annotations_pb2.MetadataPatch) -> dict[str, str]:
    """An empty text removes a key, as null does."""
    empty = [key for key, value in changes.set.items() if not value]
    effective = annotations_pb2.MetadataPatch(
        set={key: value for key, value in changes.set.items() if value},
        remove=[*changes.remove, *empty],
    )
    return patch(found, effective, reason=reasons.ERROR_REASON_INVALID_METADATA)


def _change(config: pb.EnvironmentConfig, change: pb.EnvironmentConfigPatch) -> None:
    before, wanted = config.WhichOneof("config"), change.WhichOneof("config")
    if before != wanted:
        raise Failure(
            reasons.ERROR_REASON_CONFIG_TYPE_CHANGE,
            f"is {before} and cannot become {wanted}; create another environment",
            path="config.type",
        )
    if wanted != "cloud":
        return
    if change.cloud.HasField("networking"):
        _change_networking(config.cloud.networking, change.cloud.networking)
    if change.cloud.HasField("packages"):
        for field, list_ in change.cloud.packages.ListFields():
            config.cloud.packages.ClearField(field.name)  # pyright: ignore[reportArgumentType] # same names
            getattr(config.cloud.packages, field.name).extend(list_.items)
    _complete(config.cloud)


def _change_networking(networking: pb.Networking, change: pb.NetworkingPatch) -> None:
    if change.WhichOneof("networking") != "limited":
        networking.unrestricted.SetInParent()
        return
    limited = networking.limited
    limited.SetInParent()
    if change.limited.HasField("allow_mcp_servers"):
        limited.allow_mcp_servers = change.limited.allow_mcp_servers
    if change.limited.HasField("allow_package_managers"):
        limited.allow_package_managers = change.limited.allow_package_managers
    if change.limited.HasField("allowed_hosts"):
        del limited.allowed_hosts[:]
        limited.allowed_hosts.extend(change.limited.allowed_hosts.items)


def _complete(cloud: pb.CloudConfig) -> None:
    if not cloud.HasField("networking"):
        cloud.networking.unrestricted.SetInParent()
    cloud.packages.SetInParent()
    _check_packages(cloud.packages)
    if cloud.networking.WhichOneof("networking") != "limited":
        return
    limited = cloud.networking.limited
    if not limited.HasField("allow_mcp_servers"):
        limited.allow_mcp_servers = False
    if not limited.HasField("allow_package_managers"):
        limited.allow_package_managers = False
    for index, host in enumerate(limited.allowed_hosts):
        if not _HOST.fullmatch(host):
            raise invalid(
                f"config.networking.allowed_hosts.{index}",
                "must be a host name, or *. and a domain; no scheme, port or path",
            )
    if not limited.allow_package_managers and any(
        getattr(cloud.packages, manager) for manager in _MANAGERS
    ):
        raise invalid(
            "config.packages", "needs config.networking.allow_package_managers to be true"
        )


def _check_packages(packages: pb.Packages) -> None:
    for manager in _MANAGERS:
        for index, name in enumerate(getattr(packages, manager)):
            # A name becomes an argument of the package manager on the node.
            if name.startswith("-") or any(c in name for c in "\0\r\n"):
                raise invalid(
                    f"config.packages.{manager}.{index}",
                    "must not begin with - or hold a line break or U+0000",
                )
