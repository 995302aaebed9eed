"""Decides what an environment is: checks a definition and completes it. Pure."""

import re

from counterfoil.registry.v1 import environment_pb2 as pb

from foundation.errors import invalid

_MANAGERS = ("apt", "cargo", "gem", "go", "npm", "pip")
_HOST = re.compile(
    r"(\*\.)?([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*"
    r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.?"
)


def new_environment(request: pb.CreateEnvironmentRequest, environment_id: str) -> pb.Environment:
    """The environment that a valid request describes, with every default written out.

    Times are left to the store. Raises INVALID_FIELD with the JSON path.
    """
    environment = pb.Environment(
        id=environment_id, metadata=dict(request.metadata), name=request.name
    )
    if request.description:
        environment.description = request.description
    if request.HasField("config"):
        environment.config.CopyFrom(request.config)
    else:
        environment.config.cloud.SetInParent()
    if environment.config.WhichOneof("config") == "cloud":
        _complete(environment.config.cloud)
    return environment


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
