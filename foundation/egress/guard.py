"""Where a caller begins: one guard for a process, a transport for each kind of use."""

import ssl
from collections.abc import Mapping

import httpcore2
import httpx2
import structlog

from foundation.egress.allowing import Allowed
from foundation.egress.dialing import Dialer, real_network
from foundation.egress.errors import EgressError
from foundation.egress.limits import Limits
from foundation.egress.policy import WEB_PORTS, Policy
from foundation.egress.resolving import Resolver, SystemResolver
from foundation.egress.targets import parse, target_of
from foundation.egress.transport import GuardedTransport
from foundation.trust import verifying

_log = structlog.get_logger("counterfoil.egress")


class Guard:
    """What this process may reach, and how it gets there.

    The environment has no part in it: no proxy, no netrc, no certificates of its choice.
    """

    def __init__(
        self,
        allowed: Allowed,
        *,
        ports: frozenset[int] = WEB_PORTS,
        resolver: Resolver | None = None,
        tls: ssl.SSLContext | None = None,
        network: httpcore2.AsyncNetworkBackend | None = None,
    ) -> None:
        """`allowed` is the operator's list (`parse_allowed`). The others are for tests: who
        resolves, who is trusted, and what dials an address that was judged."""
        self._policy = Policy(allowed, ports)
        self._resolver = resolver or SystemResolver()
        self._tls = tls or verifying()
        self._network = network or real_network()

    def check(self, url: str) -> httpx2.URL:
        """The URL in its normal form, if nothing but its name's addresses can speak against it.

        For settings and agents, before anything is sent. Raises EgressError.
        """
        normal = parse(url)
        self._policy.admit(target_of(normal))
        return normal

    def transport(self, limits: Limits) -> GuardedTransport:
        """A pool of connections of its own. Its user closes it."""
        dialer = Dialer(self._policy, self._resolver, limits, self._network)
        return GuardedTransport(dialer, limits, self._tls, _refusal)

    def client(
        self,
        limits: Limits,
        *,
        headers: Mapping[str, str] | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        """An httpx client for libraries that need one (the MCP SDK): no redirects, no proxies.

        It keeps cookies, so it is for one session with one server. Its user closes it.
        """
        return httpx2.AsyncClient(
            transport=self.transport(limits),
            headers=headers,
            auth=auth,
            trust_env=False,
            follow_redirects=False,
            timeout=None,
        )

    def close(self) -> None:
        """Give up the resolver. Transports are closed by their users."""
        self._resolver.close()


def _refusal(error: EgressError) -> None:
    _log.info("egress_failed", reason=error.reason.value, host=error.host)
