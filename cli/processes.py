"""One process of a split deployment: a service, a runner, or the gateway."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import structlog

from cli import composition
from cli.front import open_front
from foundation.bootstrap import Kernel
from foundation.datafolder import SERVICE_KEY_CHARACTERS_MIN
from foundation.settings import Settings
from foundation.storage import ConfigurationError, SealRing

_HEALTH_SECONDS = 2.0

PUBLIC_SERVICES = ("registry", "ledger", "context")
"""Services without which the gateway is not ready; exports need the others, too."""

_log = structlog.get_logger("counterfoil.process")


@dataclass(frozen=True)
class Started:
    """A running process: its kernel, and the address that an operator wants to know."""

    kernel: Kernel
    address: str


@asynccontextmanager
async def service(settings: Settings, name: str) -> AsyncGenerator[Started]:
    """Serves one service over gRPC; yields where it listens."""
    async with AsyncExitStack() as stack:
        kernel = _kernel(settings, (name,), sealed=True)
        stack.push_async_callback(kernel.stop)
        await composition.starter(name)(kernel)
        port = await kernel.host.listen(f"{settings.host}:{settings.grpc_port}")
        kernel.spawn(_report_health(kernel), "health")
        yield Started(kernel, f"{settings.host}:{port}")


@asynccontextmanager
async def runner(settings: Settings) -> AsyncGenerator[Started]:
    """Runs a runner; yields the provider's address."""
    if not settings.model_base_url:
        raise ConfigurationError(
            "COUNTERFOIL_MODEL_BASE_URL is not set: a runner needs a provider"
            " (for tests: `python -m offline_model` prints an address)"
        )
    async with AsyncExitStack() as stack:
        kernel = _kernel(settings, (), sealed=False)
        stack.push_async_callback(kernel.stop)
        await composition.starter(composition.RUNNER)(kernel)
        yield Started(kernel, settings.model_base_url)


@asynccontextmanager
async def gateway(settings: Settings) -> AsyncGenerator[Started]:
    """Serves REST and SSE; yields the URL."""
    async with AsyncExitStack() as stack:
        kernel = _kernel(settings, (), sealed=False)
        stack.push_async_callback(kernel.stop)
        port = await open_front(kernel, lambda: _remote_readiness(kernel, PUBLIC_SERVICES), stack)
        yield Started(kernel, f"http://{settings.host}:{port}")


def _kernel(settings: Settings, local: Sequence[str], *, sealed: bool) -> Kernel:
    settings.refuse_development_key()
    ring = None
    if sealed and any(name in composition.STATEFUL for name in local):
        if settings.seal_keys_file is None:
            raise ConfigurationError(
                "COUNTERFOIL_SEAL_KEYS_FILE is not set: stored data is sealed with its keys"
            )
        ring = SealRing.load(settings.seal_keys_file)
    return Kernel(settings, ring, _service_key(settings), local=local)


def _service_key(settings: Settings) -> str:
    if settings.service_key_file is None:
        raise ConfigurationError(
            "COUNTERFOIL_SERVICE_KEY_FILE is not set: services show each other its content"
        )
    key = settings.service_key_file.read_text().strip()
    if len(key) < SERVICE_KEY_CHARACTERS_MIN:
        raise ConfigurationError(
            f"{settings.service_key_file} must hold a random credential of at least"
            f" {SERVICE_KEY_CHARACTERS_MIN} characters"
        )
    return key


async def _remote_readiness(kernel: Kernel, names: Sequence[str]) -> dict[str, str | None]:
    answers = await asyncio.gather(*(kernel.remote_health(name) for name in names))
    return dict(zip(names, answers, strict=True))


async def _report_health(kernel: Kernel) -> None:
    """Keeps the gRPC health service truthful: a service without its database does not serve."""
    serving = True
    while True:
        problems = {k: v for k, v in (await composition.readiness(kernel)).items() if v}
        if serving == bool(problems):
            serving = not problems
            _log.warning("health changed", serving=serving, problems=problems)
            await kernel.host.set_serving(serving)
        await asyncio.sleep(_HEALTH_SECONDS)
