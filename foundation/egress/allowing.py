"""What an operator lets out although the guard would not: `COUNTERFOIL_EGRESS_ALLOW`. Pure."""

from dataclasses import dataclass
from ipaddress import ip_network

from foundation.egress.addresses import Address, Network
from foundation.egress.hosts import Target, endpoint

_PREFIX_MIN = {4: 8, 6: 7}
"""A wider network would be everything, and the guard off."""
_HOW = "write host:port, [IPv6 address]:port or a network such as 10.20.0.0/16"


@dataclass(frozen=True, slots=True)
class Allowed:
    """The entries of an allow-list."""

    targets: frozenset[Target] = frozenset()
    networks: tuple[Network, ...] = ()

    def covers(self, address: Address) -> bool:
        """Tell whether a network of the list contains the address."""
        return any(address in network for network in self.networks)

    def singles_out(self, address: Address) -> bool:
        """Tell whether an entry is a network of this one address."""
        return any(
            network.num_addresses == 1 and network.network_address == address
            for network in self.networks
        )

    def __bool__(self) -> bool:
        return bool(self.targets or self.networks)

    def __str__(self) -> str:
        return ",".join([*sorted(map(str, self.targets)), *map(str, self.networks)])


def parse_allowed(text: str) -> Allowed:
    """The list in a setting: entries with commas between them, white space around them ignored.

    Raises ValueError with the first entry that is none, and what is wrong with it.
    """
    if not text.strip():
        return Allowed()
    targets: list[Target] = []
    networks: list[Network] = []
    for entry in (part.strip() for part in text.split(",")):
        try:
            if "/" in entry:
                networks.append(_network(entry))
            else:
                targets.append(_target(entry))
        except ValueError as error:
            raise ValueError(f"entry {entry!r}: {error}; {_HOW}") from error
    return Allowed(frozenset(targets), tuple(dict.fromkeys(networks)))


def _network(entry: str) -> Network:
    if "%" in entry:
        raise ValueError("a network has no zone")
    network = ip_network(entry)
    least = _PREFIX_MIN[network.version]
    if network.prefixlen < least:
        raise ValueError(f"a network is /{least} or smaller, or nothing would be guarded")
    return network


def _target(entry: str) -> Target:
    host, _, digits = entry.rpartition(":")
    if not host or not (digits.isascii() and digits.isdecimal()):
        raise ValueError("no host with a port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if ":" not in host:
            raise ValueError("brackets are for IPv6 addresses")
    elif ":" in host:
        raise ValueError("an IPv6 address stands in brackets")
    return endpoint(host.lower(), int(digits))
