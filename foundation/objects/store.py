"""An S3 object store: put, get, delete, list. Knows nothing of what the bytes are."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from foundation.settings import Settings

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Store

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_CALL_SECONDS = 30
_CONNECT_SECONDS = 3
_RETRIES = 2
_RETRY_SECONDS = 5


class StoreUnavailable(Exception):
    """The store cannot serve now, or refuses us: the same call may work later. The text names what
    went wrong and holds no content and no credential."""


class Missing(Exception):
    """The store is there, and has no such object."""


@dataclass(frozen=True)
class Endpoint:
    """Where a store is, and how we say who we are."""

    url: str
    access_key: str
    secret_key: str = field(repr=False)
    bucket: str
    region: str


def endpoint_of(settings: Settings) -> Endpoint:
    """The store that the settings name."""
    return Endpoint(
        url=settings.s3_endpoint,
        access_key=settings.s3_access_key.get_secret_value(),
        secret_key=settings.s3_secret_key.get_secret_value(),
        bucket=settings.s3_bucket,
        region=settings.s3_region,
    )


Locate = Callable[[], Awaitable[Endpoint]]
"""Where the store is now; may have to start it first. Raises StoreUnavailable."""

Settle = Callable[[], Awaitable[None]]
"""Makes what the store was given durable, where it does not do so itself."""


async def _settled() -> None:
    """A store of somebody else's answers when it has stored."""


class ObjectStore:
    """One bucket. Nothing is imported and nobody is asked before the first call.

    Every call raises StoreUnavailable. An object appears whole or not at all.
    """

    def __init__(self, locate: Locate, settle: Settle = _settled) -> None:
        self._locate = locate
        self._settle = settle
        self._made: tuple[Endpoint, S3Store] | None = None

    @classmethod
    def at(cls, endpoint: Endpoint) -> "ObjectStore":
        """The store at a fixed place."""

        async def locate() -> Endpoint:
            return endpoint

        return cls(locate)

    async def put(self, key: str, body: bytes) -> None:
        """Store an object, in place of an older one; durable when this returns."""
        bucket = await self._bucket()
        try:
            # In one request: what a crash cut off of several parts would stay in the store, unseen.
            await bucket.put_async(key, body, use_multipart=False)
        except Exception as error:
            raise _unavailable("PUT", error) from None
        await self._settle()

    async def get(self, key: str) -> bytes:
        """An object's bytes. Raises Missing."""
        bucket = await self._bucket()
        try:
            found = await bucket.get_async(key)
            return bytes(await found.bytes_async())
        except FileNotFoundError as error:
            raise _missing("GET", error) from None
        except Exception as error:
            raise _unavailable("GET", error) from None

    async def delete(self, key: str) -> None:
        """Remove an object, if it is there; durable when this returns."""
        bucket = await self._bucket()
        try:
            await bucket.delete_async(key)
        except FileNotFoundError as error:
            if isinstance(failure := _missing("DELETE", error), StoreUnavailable):
                raise failure from None
        except Exception as error:
            raise _unavailable("DELETE", error) from None
        await self._settle()

    async def keys(self, prefix: str, after: str, limit: int) -> list[str]:
        """Up to `limit` keys below `prefix` that are greater than `after`, in order."""
        bucket = await self._bucket()
        try:
            # Its declared types are those of a library that we do not install.
            pages = cast("Any", bucket).list(prefix, offset=after or None, chunk_size=limit)
            found: list[str] = [one["path"] for one in await anext(pages)]
        except StopAsyncIteration:
            return []
        except Exception as error:
            raise _unavailable("LIST", error) from None
        return sorted(found)[:limit]

    async def _bucket(self) -> "S3Store":
        endpoint = await self._locate()
        if self._made is None or self._made[0] != endpoint:
            self._made = (endpoint, _open(endpoint))
        return self._made[1]


def _open(endpoint: Endpoint) -> "S3Store":
    from obstore.store import S3Store

    client: ClientConfig = {
        "allow_http": endpoint.url.startswith("http://"),
        "timeout": timedelta(seconds=_CALL_SECONDS),
        "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
    }
    host = urlsplit(endpoint.url).hostname or ""
    if host in _LOOPBACK:
        # A proxy from the environment is for others than ourselves.
        client |= {"proxy_url": endpoint.url, "proxy_excludes": host}
    return S3Store(
        endpoint.bucket,
        endpoint=endpoint.url,
        access_key_id=endpoint.access_key,
        secret_access_key=endpoint.secret_key,
        region=endpoint.region,
        virtual_hosted_style_request=False,
        client_options=client,
        retry_config={
            "max_retries": _RETRIES,
            "retry_timeout": timedelta(seconds=_RETRY_SECONDS),
        },
    )


def _missing(verb: str, error: FileNotFoundError) -> Exception:
    # A bucket that is not there says nothing about the object.
    return _unavailable(verb, error) if "NoSuchBucket" in str(error) else Missing()


def _unavailable(verb: str, error: Exception) -> StoreUnavailable:
    # Its text may hold what the other side sent: only its kind goes on.
    return StoreUnavailable(f"object store: {verb} failed ({type(error).__name__})")
