"""Everything in one process on one data folder: `counterfoil run`.

What takes long at a start is PostgreSQL's recovery after a crash, and importing ourselves; neither
waits for the other. So this module imports little before PostgreSQL runs.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import SecretStr

from cli import composition
from cli.offline import OfflineModel
from cli.progress import waiting
from foundation.datafolder import DataFolder
from foundation.postgres import EmbeddedPostgres
from foundation.settings import SERVICES, Settings
from foundation.storage import SealRing

if TYPE_CHECKING:
    from foundation.bootstrap import Kernel

_Update = dict[str, str | SecretStr]
"""Settings by name."""


@dataclass(frozen=True)
class Embedded:
    """A running embedded deployment."""

    kernel: "Kernel"
    settings: Settings
    rest_url: str
    grpc_address: str
    model_url: str
    offline: bool


@asynccontextmanager
async def running(
    settings: Settings, owned: Callable[[], None] = lambda: None
) -> AsyncGenerator[Embedded]:
    """Starts everything, and stops it at the end of the block. Calls `owned` when the folder is
    ours, while PostgreSQL starts: for whatever else takes a while.

    Raises FolderInUse, OSError (a port is taken), PostgresFailed, ValueError (a setting).
    """
    settings.refuse_development_key()
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(DataFolder.open(settings.data_dir))
        offline = not settings.model_base_url
        settings = await _with_parts(settings, folder, stack, owned)
        await composition.migrate(settings)
        kernel = await _services(settings, folder, stack)
        grpc_port = await kernel.host.listen(f"{settings.host}:{settings.grpc_port}")
        rest_port = await _front(kernel, stack)
        await composition.starter(composition.RUNNER)(kernel)
        yield Embedded(
            kernel=kernel,
            settings=settings,
            rest_url=f"http://{settings.host}:{rest_port}",
            grpc_address=f"{settings.host}:{grpc_port}",
            model_url=settings.model_base_url,
            offline=offline,
        )


async def _with_parts(
    settings: Settings, folder: DataFolder, stack: AsyncExitStack, owned: Callable[[], None]
) -> Settings:
    """Settings that name a database for every service, and a model: the operator's, or ours, which
    start while this process imports the rest of itself."""
    starting = [
        asyncio.create_task(_databases(settings, folder, stack)),
        asyncio.create_task(_model(settings, stack)),
    ]
    await asyncio.sleep(0)  # each runs until it waits for its process
    try:
        composition.load()
        owned()
    finally:
        updates = await composition.together(starting)
    return settings.model_copy(update={k: v for update in updates for k, v in update.items()})


async def _databases(settings: Settings, folder: DataFolder, stack: AsyncExitStack) -> _Update:
    missing = [name for name in composition.STATEFUL if not settings.database_url_of(name)]
    if not missing:
        return {}
    postgres = EmbeddedPostgres()
    with waiting("Starting PostgreSQL …"):
        dsn = SecretStr(await postgres.start(folder.postgres))
    stack.push_async_callback(postgres.stop)
    return {f"{name}_database_url": dsn for name in missing}


async def _model(settings: Settings, stack: AsyncExitStack) -> _Update:
    if settings.model_base_url:
        return {}
    model = await OfflineModel.start(record_dir=settings.model_record_dir)
    stack.push_async_callback(model.stop)
    return {
        "model_base_url": model.url,
        "model_profile": "offline",
        "model_api_key": SecretStr("offline"),
    }


async def _services(settings: Settings, folder: DataFolder, stack: AsyncExitStack) -> "Kernel":
    """A kernel with every service, of which nothing is served yet."""
    from foundation.bootstrap import Kernel
    from foundation.objects import EmbeddedObjects, ObjectStore
    from services.ledger.service import void_leases

    ring = _ring(settings, folder)
    embedded = EmbeddedObjects(folder.path / "objects")
    stack.push_async_callback(embedded.stop)
    kernel = Kernel(
        settings,
        ring,
        folder.service_key(),
        boots=folder.boots_id(),
        objects=ObjectStore(embedded.locate, embedded.settle),
    )
    stack.push_async_callback(kernel.stop)
    await composition.together(composition.starter(service)(kernel) for service in SERVICES)
    # We hold the folder's lock, so no owner that was started on it before can be alive.
    await void_leases(kernel)
    return kernel


async def _front(kernel: "Kernel", stack: AsyncExitStack) -> int:
    from cli.front import open_front

    return await open_front(kernel, lambda: composition.readiness(kernel), stack)


def _ring(settings: Settings, folder: DataFolder) -> SealRing:
    if settings.seal_keys_file is not None:
        return SealRing.load(settings.seal_keys_file)
    if folder.seal_keys_file.exists():
        return SealRing.load(folder.seal_keys_file)
    return SealRing.generate(folder.seal_keys_file)
