"""What every process is made of: settings, keys, databases, channels, served services, tasks.

Embedded, one kernel hosts all services and their channels stay in process; split, each process has
a kernel with one service and reaches the others at `COUNTERFOIL_<SERVICE>_ADDRESS`. Services see
no difference.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import grpc
import structlog
from counterfoil.registry.v1 import registry_pb2, registry_pb2_grpc
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation import measures
from foundation.authentication import CachedAuthenticator
from foundation.errors import Failure
from foundation.idempotency import Replays
from foundation.objects import ObjectStore, endpoint_of
from foundation.rpc.admission import Admission
from foundation.rpc.host import Host
from foundation.rpc.remote import RemoteChannel
from foundation.settings import SERVICES, Settings
from foundation.storage import ConfigurationError, Database, SealRing

_log = structlog.get_logger("counterfoil.kernel")


_REPLAYING = ("registry", "ledger")
"""Services with public POST methods: they keep answers for requests under an idempotency key."""


class Kernel:
    """One process. Services take from it what they need at start, and nothing afterwards."""

    def __init__(
        self,
        settings: Settings,
        ring: SealRing | None,
        service_key: str,
        *,
        local: Sequence[str] = SERVICES,
        boots: str = "",
        objects: ObjectStore | None = None,
    ) -> None:
        """`local` names the services of this process; the others are remote. `boots` is the id of
        the data folder whose lock this process holds: what earlier processes on it held is free.
        `objects` is the embedded object store, for a process that may have one."""
        self.boots = boots
        self.settings = settings
        self.service_key = service_key
        self._ring = ring
        self._objects = objects
        self._local = frozenset(local)
        authenticator = CachedAuthenticator(self._authenticate)
        self._databases: dict[str, Database] = {}
        self._replays: dict[str, Replays] = {}
        self.host = Host(Admission(service_key, authenticator), self._replays.get)
        self._remotes: dict[tuple[str, str], RemoteChannel] = {}
        self._watches: list[Callable[[], None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def ring(self) -> SealRing:
        """Keys of stored data; raises ConfigurationError in a process that stores nothing."""
        if self._ring is None:
            raise ConfigurationError("this process has no seal keys")
        return self._ring

    @property
    def objects(self) -> ObjectStore:
        """Where files are kept: the object store of the settings, else the embedded one. Raises
        ConfigurationError where there is neither."""
        if self.settings.s3_endpoint:
            return ObjectStore.at(endpoint_of(self.settings))
        if self._objects is None:
            raise ConfigurationError(
                "COUNTERFOIL_S3_ENDPOINT is not set: the files service needs an object store"
            )
        return self._objects

    async def database(self, service: str) -> Database:
        """The database of a service, opened once; raises ConfigurationError without a DSN."""
        if service not in self._databases:
            dsn = self.settings.database_url_of(service)
            if not dsn:
                variable = f"COUNTERFOIL_{service.upper()}_DATABASE_URL"
                raise ConfigurationError(f"{variable} is not set: the {service} needs a database")
            opened = self._databases[service] = await Database.open(dsn, service=service)
            self._watches.append(measures.CONNECTIONS.watch(lambda: opened.busy, service, "used"))
            if service in _REPLAYING:
                replays = self._replays[service] = Replays(opened, self.ring, service)
                self.spawn(replays.sweep(), f"{service}-replays")
        return self._databases[service]

    @property
    def databases(self) -> dict[str, Database]:
        """The opened databases by service, for readiness checks."""
        return dict(self._databases)

    def channel(self, service: str, *, credential: str | None = None) -> grpc.aio.Channel:
        """A channel to a service, wherever it is; calls raise Failure.

        `credential` defaults to the service credential; the gateway passes "" and sends the
        client's own with each call.
        """
        chosen = self.service_key if credential is None else credential
        if service in self._local:
            return self.host.channel(chosen)
        return self._remote(service, chosen).as_channel()

    def _remote(self, service: str, credential: str) -> RemoteChannel:
        key = (service, credential)
        if key not in self._remotes:
            address = self.settings.address_of(service)
            if not address:
                variable = f"COUNTERFOIL_{service.upper()}_ADDRESS"
                raise ConfigurationError(f"{variable} is not set: this process calls the {service}")
            self._remotes[key] = RemoteChannel(address, credential)
        return self._remotes[key]

    async def remote_health(self, service: str) -> str | None:
        """None when a remote service says that it serves, else what is wrong."""
        return await self._remote(service, self.service_key).health()

    def register(self, add: Callable[[Any, Any], None], servicer: object) -> None:
        """Serves a servicer; `add` is the generated `add_…Servicer_to_server`."""
        self.host.register(add, servicer)

    def watch(self, end: Callable[[], None]) -> None:
        """Keeps what ends a gauge's reading, or helpers of a service, until the process stops:
        after the last call was served."""
        self._watches.append(end)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Runs background work until the process stops. Work that ends with an error ends the
        process: a service without its dispatcher must not look alive."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if task.cancelled() or task.exception() is None:
            return
        _log.error("background work failed", task=task.get_name(), exc_info=task.exception())
        if not self._failed.done():
            self._failed.set_exception(task.exception() or RuntimeError(task.get_name()))

    async def failure(self) -> None:
        """Waits until background work fails, then raises its error."""
        await asyncio.shield(self._failed)

    async def stop(self) -> None:
        """Stops background work, then serving, then closes channels and databases."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.host.stop()
        for remote in self._remotes.values():
            await remote.close()
        for end in self._watches:
            end()
        for database in self._databases.values():
            await database.close()
        if not self._failed.done():
            self._failed.cancel()

    async def _authenticate(self, api_key: str) -> registry_pb2.AuthenticateResponse | None:
        stub = registry_pb2_grpc.RegistryServiceStub(self.channel("registry"))
        try:
            return await stub.Authenticate(registry_pb2.AuthenticateRequest(api_key=api_key))
        except Failure as failure:
            if failure.reason in _NOT_ISSUED:
                return None
            raise


_NOT_ISSUED = (reasons.ERROR_REASON_UNAUTHENTICATED, reasons.ERROR_REASON_INVALID_FIELD)
