"""What an IP address is for: the ranges that are not the public Internet. Pure data.

After the special-purpose registries of IANA (RFC 6890 and its updates), and the addresses at which
clouds hand out credentials. Of IPv6 only 2000::/3 is in use at all.
"""

from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Special:
    """Why an address is not public."""

    what: str
    """For people: `loopback`, `NAT64`."""
    is_internal: bool = False
    """Whether services of one's own may well be there."""
    is_metadata: bool = False
    """Whether a cloud hands out credentials there."""


_METADATA = Special("cloud metadata", is_metadata=True)

METADATA = frozenset(
    ip_address(text)
    for text in (
        "100.100.100.200",  # Alibaba
        "168.63.129.16",  # Azure, a public address that only its machines reach
        "169.254.169.253",  # the resolver of Amazon
        "169.254.169.254",  # Amazon, Google, Azure, Oracle, DigitalOcean, OpenStack
        "169.254.170.2",  # Amazon ECS
        "169.254.170.23",  # Amazon EKS
        "192.0.0.192",  # Oracle, classic
        "fd00:ec2::23",  # Amazon EKS
        "fd00:ec2::253",  # the resolver of Amazon
        "fd00:ec2::254",  # Amazon
        "fd20:ce::254",  # Google
        "fe80::a9fe:a9fe",  # OpenStack
    )
)

_INTERNAL = {
    "loopback": ("127.0.0.0/8", "::1/128"),
    "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),
    "site-local": ("fec0::/10",),
    "shared (carrier-grade NAT)": ("100.64.0.0/10",),
}

_NEVER = {
    "unspecified": ("0.0.0.0/32", "::/128"),
    "this-network": ("0.0.0.0/8",),
    "link-local": ("169.254.0.0/16", "fe80::/10"),
    "multicast": ("224.0.0.0/4", "ff00::/8"),
    "broadcast": ("255.255.255.255/32",),
    "documentation": (
        "192.0.2.0/24",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "2001:db8::/32",
        "3fff::/20",
    ),
    "benchmarking": ("198.18.0.0/15", "2001:2::/48"),
    "6to4 relay": ("192.88.99.0/24",),
    "protocol assignment": ("192.0.0.0/24", "2001::/23"),
    "reserved": ("240.0.0.0/4",),
    "IPv4-mapped": ("::ffff:0:0/96",),
    "IPv4-translated": ("::ffff:0:0:0/96",),
    "IPv4-compatible": ("::/96",),
    "NAT64": ("64:ff9b::/96",),
    "local NAT64": ("64:ff9b:1::/48",),
    "Teredo": ("2001::/32",),
    "6to4": ("2002::/16",),
    "ORCHID": ("2001:10::/28", "2001:20::/28"),
    "drone identity": ("2001:30::/28",),
    "discard": ("100::/64", "100:0:0:1::/64"),
    "segment routing": ("5f00::/16",),
}


def _table() -> tuple[tuple[Network, Special], ...]:
    """All ranges, the narrowest first, so that the first that matches says most."""
    rows = [
        (ip_network(text), Special(what, is_internal=is_internal))
        for is_internal, ranges in ((True, _INTERNAL), (False, _NEVER))
        for what, texts in ranges.items()
        for text in texts
    ]
    return tuple(sorted(rows, key=lambda row: -row[0].prefixlen))


_TABLE = _table()
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_ISATAP = (0x00005EFE, 0x02005EFE)
"""Third quarter of an IPv6 address whose last quarter is an IPv4 address (RFC 5214)."""


def special(address: Address) -> Special | None:
    """Why the address is not one of the public Internet; None if it is one.

    The whole address counts: a tunnel or translation is special whatever it leads to.
    """
    if address in METADATA:
        return _METADATA
    for network, found in _TABLE:
        if address in network:
            return found
    if isinstance(address, IPv6Address):
        if address not in _GLOBAL_UNICAST:
            return Special("reserved")
        if _quarters(address)[2] in _ISATAP:
            return Special("ISATAP")
    return None


def carried(address: Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses to which a tunnel or translation leads, as far as its form tells.

    Of local NAT64, where the position depends on the operator's prefix, both ends of the range of
    possible positions (/48 and /96) are taken.
    """
    if isinstance(address, IPv4Address):
        return ()
    value = int(address)
    last = IPv4Address(value & 0xFFFFFFFF)
    if address in IPv6Network("2002::/16"):
        return (IPv4Address(value >> 80 & 0xFFFFFFFF),)
    if address in IPv6Network("2001::/32"):
        return (IPv4Address(value >> 64 & 0xFFFFFFFF), IPv4Address(int(last) ^ 0xFFFFFFFF))
    if address in IPv6Network("64:ff9b:1::/48"):
        split = (value >> 64 & 0xFFFF) << 16 | value >> 40 & 0xFFFF
        return (last, IPv4Address(split))
    if any(address in network for network in _ENDS_WITH_IPV4) and value > 1:
        return (last,)
    if address in _GLOBAL_UNICAST and _quarters(address)[2] in _ISATAP:
        return (last,)
    return ()


_ENDS_WITH_IPV4 = tuple(
    IPv6Network(text) for text in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")
)


def _quarters(address: IPv6Address) -> tuple[int, int, int, int]:
    value = int(address)
    return (
        value >> 96,
        value >> 64 & 0xFFFFFFFF,
        value >> 32 & 0xFFFFFFFF,
        value & 0xFFFFFFFF,
    )
