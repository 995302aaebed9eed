"""The gate loop with every service, the runner and the gateway in processes of their own."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from bench import chat
from bench.plan import Plan, Sample
from bench.rows.sessions import saturated
from bench.server import COUNTERFOIL, Server, folder, free_ports
from bench.stats import percentile
from cli.composition import STATEFUL
from cli.offline import OfflineModel
from foundation.datafolder import DataFolder
from foundation.postgres import EmbeddedPostgres
from foundation.settings import SERVICES
from foundation.storage import SealRing


async def split(plan: Plan) -> list[Sample]:
    """Loops per second of many clients."""
    rates: dict[int, float] = {}
    worst: dict[int, float] = {}
    with folder() as place:
        async with deployment(place) as (url, _):
            agent = await chat.Place.make(url)
            for clients in plan.sweep[:2]:
                await saturated(agent, clients, plan.seconds(1))
                rates[clients], times = await saturated(agent, clients, plan.seconds(8))
                worst[clients] = percentile(times, 99)
    best = max(rates, key=lambda clients: rates[clients])
    sweep = "; ".join(
        f"{clients} clients {rate:.1f}/s (p99 {worst[clients] * 1e3:.0f} ms)"
        for clients, rate in rates.items()
    )
    note = f"n is the number of clients; {len(SERVICES) + 2} processes and PostgreSQL; {sweep}"
    return [Sample("split_rate", rates[best], n=best, note=note, series=list(rates.values()))]


@asynccontextmanager
async def deployment(place: Path) -> AsyncGenerator[tuple[str, list[Server]]]:
    """A split deployment made of its commands; its URL and its processes."""
    ports = free_ports(len(SERVICES) + 1)
    rest = ports.pop()
    url = f"http://127.0.0.1:{rest}"
    addresses = {service: ports.pop() for service in SERVICES}
    async with AsyncExitStack() as stack:
        postgres = EmbeddedPostgres()
        dsn = await postgres.start(place / "postgres")
        stack.push_async_callback(postgres.stop)
        model = await OfflineModel.start()
        stack.push_async_callback(model.stop)
        environment = {
            **_keys(place / "keys"),
            **{f"COUNTERFOIL_{one.upper()}_DATABASE_URL": dsn for one in STATEFUL},
            **{f"COUNTERFOIL_{k.upper()}_ADDRESS": f"127.0.0.1:{v}" for k, v in addresses.items()},
            "COUNTERFOIL_MODEL_BASE_URL": model.url,
            "COUNTERFOIL_MODEL_API_KEY": "offline",
            "COUNTERFOIL_MODEL_PROFILE": "offline",
            "COUNTERFOIL_PORT": str(rest),
            # Nothing here has a file.
            "COUNTERFOIL_S3_ENDPOINT": "http://127.0.0.1:9",
            "COUNTERFOIL_LOG_LEVEL": "warning",
        }
        migration = Server("migrate", place, (*COUNTERFOIL, "migrate"), environment)
        migration.start()
        await asyncio.to_thread(migration.finished)
        commands = {
            name: (("serve", name), {"COUNTERFOIL_GRPC_PORT": str(port)})
            for name, port in addresses.items()
        }
        commands |= {"runner": (("runner",), {}), "gateway": (("gateway",), {})}
        servers = [
            Server(name, place, (*COUNTERFOIL, *arguments), {**environment, **own})
            for name, (arguments, own) in commands.items()
        ]
        for server in servers:
            stack.callback(server.stop)
            server.start()
        for server in servers:
            await asyncio.to_thread(server.ready, "is ready at")
        yield url, servers


def _keys(data: Path) -> dict[str, str]:
    with DataFolder.open(data) as made:
        made.service_key()
        SealRing.generate(made.seal_keys_file)
        return {
            "COUNTERFOIL_SERVICE_KEY_FILE": str(made.service_key_file),
            "COUNTERFOIL_SEAL_KEYS_FILE": str(made.seal_keys_file),
        }
