"""Hosts and ports, read so strictly that no two programs can see two in one. Pure."""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from foundation.egress.addresses import Address

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_HOST_CHARS_MAX = 253


@dataclass(frozen=True, slots=True)
class Target:
    """Where a connection goes."""

    host: str
    """Lower case, ASCII; an IPv6 address in its short form, without brackets."""
    port: int
    address: Address | None
    """The address, where the host is one."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def endpoint(host: str, port: int) -> Target:
    """A host (an IPv6 address without brackets) and a port as they are about to be dialled.

    Raises ValueError with what is wrong and what to write.
    """
    if not 0 < port < 65536:
        raise ValueError("a port is a number from 1 to 65535")
    if ":" in host:
        return _ipv6(host, port)
    if not host or len(host) > _HOST_CHARS_MAX:
        raise ValueError("a host has 1 to 253 characters")
    labels = host.split(".")
    if not all(map(_LABEL.fullmatch, labels)):
        raise ValueError("the host is no name of lower-case letters, digits, - and _")
    if not _NUMBER.fullmatch(labels[-1]):
        return Target(host, port, None)
    # Programs read 127.1, 0x7f000001, 017700000001 and 2130706433 as addresses, each its own way.
    try:
        address = IPv4Address(host)
    except ValueError:
        raise ValueError("the host is a number; write four decimal numbers, or a name") from None
    return Target(str(address), port, address)


def _ipv6(host: str, port: int) -> Target:
    try:
        address = IPv6Address(host)
    except ValueError:
        raise ValueError("the host is no IPv6 address") from None
    if address.scope_id is not None:
        raise ValueError("an IPv6 address with a zone is never dialled")
    return Target(str(address), port, address)
