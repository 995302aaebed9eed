"""May this connection be made? Pure: the answers of the resolver are handed in."""

from collections.abc import Sequence
from dataclasses import dataclass

from foundation.egress.addresses import Address, carried, special
from foundation.egress.allowing import Allowed
from foundation.egress.errors import EgressError, Reason
from foundation.egress.hosts import Target

WEB_PORTS = frozenset({80, 443, 8080, 8443})
"""Ports of public hosts that are dialled without an entry of the operator's."""

_LET = "an operator can allow it with COUNTERFOIL_EGRESS_ALLOW"


@dataclass(frozen=True, slots=True)
class Policy:
    """What an operator's allow-list makes of the general rules."""

    allowed: Allowed
    ports: frozenset[int] = WEB_PORTS

    def admit(self, target: Target) -> None:
        """Refuses what no answer of a resolver could make right. Raises EgressError."""
        if target.address is not None:
            self.judge(target, (target.address,))
        elif target in self.allowed.targets:
            return
        elif target.host == "localhost" or target.host.endswith(".localhost"):
            raise _address(target, "is this machine")
        elif target.port not in self.ports and not self.allowed.networks:
            raise _port(target)

    def judge(self, target: Target, addresses: Sequence[Address]) -> None:
        """Refuses the connection unless every one of the addresses may be dialled.

        One forbidden address among good ones is enough: whoever answers so is either mistaken
        about their own network, or waits for us to try the next one. Raises EgressError.
        """
        if not addresses:
            message = "the name has no address; check the host in the URL"
            raise EgressError(Reason.UNRESOLVED, str(target), message)
        for address in addresses:
            self._judge_address(target, address)
            self._judge_port(target, address)

    def _judge_port(self, target: Target, address: Address) -> None:
        is_named = target in self.allowed.targets
        if not (is_named or target.port in self.ports or self.allowed.covers(address)):
            raise _port(target)

    def _judge_address(self, target: Target, address: Address) -> None:
        found = special(address)
        if found is not None and not self._is_let(target, address):
            verb = "is" if target.address is not None else "resolves to"
            raise _address(target, f"{verb} an address that is not public ({found.what})")
        for inner in carried(address):
            self._judge_address(target, inner)

    def _is_let(self, target: Target, address: Address) -> bool:
        """Tell whether an entry of the operator's lets this special address be dialled.

        A host by name is let into internal networks only: what its name resolves to is decided
        elsewhere. Addresses with credentials must be listed one by one.
        """
        found = special(address)
        if found is None:
            return True
        if self.allowed.singles_out(address):
            return True
        is_named = target in self.allowed.targets
        if is_named and target.address == address:
            return True
        if found.is_metadata:
            return False
        return (is_named and found.is_internal) or self.allowed.covers(address)


def _address(target: Target, what: str) -> EgressError:
    return EgressError(Reason.ADDRESS, str(target), f"the host {what}; {_LET}")


def _port(target: Target) -> EgressError:
    return EgressError(Reason.PORT, str(target), f"this port is not one of the web; {_LET}")
