"""Everything in one process on one data folder: `counterfoil run`."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from pydantic import SecretStr

from cli import composition
from cli.offline import OfflineModel
from cli.progress import waiting
from foundation import measures
from foundation.bootstrap import Kernel
from foundation.datafolder import DataFolder
from foundation.postgres import EmbeddedPostgres
from foundation.settings import SERVICES, Settings
from foundation.storage import SealRing
from gateway.app import create_app
from gateway.limits import Rates
from gateway.server import serve


@dataclass(frozen=True)
class Embedded:
    """A running embedded deployment."""

    kernel: Kernel
    settings: Settings
    rest_url: str
    grpc_address: str
    model_url: str
    offline: bool


@asynccontextmanager
async def running(settings: Settings) -> AsyncGenerator[Embedded]:
    """Starts everything, and stops it at the end of the block.

    Raises FolderInUse, OSError (a port is taken), PostgresFailed, ValueError (a setting).
    """
    settings.refuse_development_key()
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(DataFolder.open(settings.data_dir))
        settings = await _with_databases(settings, folder, stack)
        await composition.migrate(settings)
        offline = not settings.model_base_url
        if offline:
            model = await OfflineModel.start(record_dir=settings.model_record_dir)
            stack.push_async_callback(model.stop)
            update = {
                "model_base_url": model.url,
                "model_profile": "offline",
                "model_api_key": SecretStr("offline"),
            }
            settings = settings.model_copy(update=update)
        kernel = Kernel(
            settings, _ring(settings, folder), folder.service_key(), boots=folder.boots_id()
        )
        stack.push_async_callback(kernel.stop)
        for service in SERVICES:
            await composition.starter(service)(kernel)
        await _void_leases(kernel)
        grpc_port = await kernel.host.listen(f"{settings.host}:{settings.grpc_port}")
        app = create_app(
            lambda service: kernel.channel(service, credential=""),
            readiness=lambda: composition.readiness(kernel),
            rates=Rates(settings.rate_limit_create, settings.rate_limit_read),
        )
        kernel.watch(measures.STREAMS.watch(lambda: app.open_streams, "gateway"))
        rest = await serve(app, settings.host, settings.port)
        stack.push_async_callback(rest.stop)
        await composition.starter(composition.RUNNER)(kernel)
        yield Embedded(
            kernel=kernel,
            settings=settings,
            rest_url=f"http://{settings.host}:{rest.port}",
            grpc_address=f"{settings.host}:{grpc_port}",
            model_url=settings.model_base_url,
            offline=offline,
        )


async def _void_leases(kernel: Kernel) -> None:
    """We hold the folder's lock, so no owner that was started on it before can be alive."""
    from services.ledger.service import void_leases

    await void_leases(kernel)


async def _with_databases(
    settings: Settings, folder: DataFolder, stack: AsyncExitStack
) -> Settings:
    """Settings in which every service has a database: the operator's, or the embedded one."""
    missing = [name for name in composition.STATEFUL if not settings.database_url_of(name)]
    if not missing:
        return settings
    postgres = EmbeddedPostgres()
    with waiting("Starting PostgreSQL …"):
        dsn = SecretStr(await postgres.start(folder.postgres))
    stack.push_async_callback(postgres.stop)
    return settings.model_copy(update={f"{name}_database_url": dsn for name in missing})


def _ring(settings: Settings, folder: DataFolder) -> SealRing:
    if settings.seal_keys_file is not None:
        return SealRing.load(settings.seal_keys_file)
    if folder.seal_keys_file.exists():
        return SealRing.load(folder.seal_keys_file)
    return SealRing.generate(folder.seal_keys_file)
