"""Opening one connection the way every service needs it, and what its errors mean."""

from typing import TYPE_CHECKING, NoReturn

import asyncpg

from foundation.storage.errors import CommitUnknown, ConfigurationError, Unavailable

Record = asyncpg.Record
if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]
else:
    # At run time the class takes no parameter; the name is needed for annotations.
    Connection = asyncpg.Connection

_CONNECT_S = 10.0
# A process that is paused inside a transaction would hold a session's lock for as long.
_IDLE_IN_TRANSACTION_MS = 15_000
_STATEMENTS_CACHED = 512
_STATEMENT_BYTES_CACHED = 64 * 1024

# What must be set, and which values keep an answered commit on our own disk. `remote_apply` waits
# for more than `on` does; `remote_write` and `local` for less than a configured standby was
# promised to give.
_DURABLE = {
    "fsync": ("on",),
    "full_page_writes": ("on",),
    "synchronous_commit": ("on", "remote_apply"),
}

DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)
"""What a statement may raise because of the database."""

_TRANSIENT = (
    asyncpg.PostgresConnectionError,  # 08xxx
    asyncpg.InsufficientResourcesError,  # 53xxx: too many connections, disk or memory full
    asyncpg.TransactionRollbackError,  # 40xxx: deadlock, serialization
    asyncpg.CannotConnectNowError,  # 57P03: starting, stopping, recovering
    asyncpg.AdminShutdownError,  # 57P01
    asyncpg.CrashShutdownError,  # 57P02
    asyncpg.IdleInTransactionSessionTimeoutError,  # 25P03
)


async def connect(
    dsn: str, *, application: str, writer: bool = False, lock_ms: int = 0
) -> Connection:
    """A checked connection; read-only outside explicit READ WRITE transactions unless `writer`.

    Its statements wait at most `lock_ms` for a lock; 0 for as long as it takes.

    Raises Unavailable, or ConfigurationError when the server could lose an answered commit.
    """
    try:
        connection = await asyncpg.connect(
            dsn,
            timeout=_CONNECT_S,
            statement_cache_size=_STATEMENTS_CACHED,
            max_cached_statement_lifetime=0,
            max_cacheable_statement_size=_STATEMENT_BYTES_CACHED,
            server_settings={
                "application_name": application,
                "default_transaction_read_only": "off" if writer else "on",
                "default_transaction_isolation": "read committed",
                "idle_in_transaction_session_timeout": str(_IDLE_IN_TRANSACTION_MS),
                "jit": "off",
                "lock_timeout": str(lock_ms),
                # Writers repeat a few long statements by key: planning them anew finds nothing.
                "plan_cache_mode": "force_generic_plan" if writer else "auto",
                "timezone": "UTC",
            },
        )
    except (OSError, TimeoutError, *_TRANSIENT) as error:
        raise Unavailable(f"cannot connect to the database: {error}") from error
    except (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError) as err:
        raise ConfigurationError(
            f"the database refuses the connection: {err}. Check the database URL."
        ) from err
    try:
        await _refuse_unless_durable(connection)
    except BaseException:
        connection.terminate()
        raise
    return connection


async def _refuse_unless_durable(connection: Connection) -> None:
    try:
        rows = await connection.fetch(
            "SELECT name, setting FROM pg_settings WHERE name = ANY($1::text[])", list(_DURABLE)
        )
    except DRIVER_ERRORS as error:
        raise_translated(error, connection)
    for row in rows:
        name, value = row["name"], row["setting"]
        if value not in _DURABLE[name]:
            raise ConfigurationError(
                f"PostgreSQL has {name} = {value}: an accepted request could be lost. Set"
                f" {name} = on (for the server, the database and the role) and start again."
            )


def translate(error: Exception, connection: Connection) -> Exception:
    """Unavailable for what a repeat may cure, else the error itself."""
    if isinstance(error, asyncpg.InternalClientError):
        # The server has said goodbye, and asyncpg waits for more instead of the end of the stream.
        connection.terminate()
        return Unavailable(f"the connection to the database is lost: {error}")
    if isinstance(error, _TRANSIENT) or (
        connection.is_closed() and isinstance(error, (OSError, asyncpg.InterfaceError))
    ):
        return Unavailable(f"the database does not serve this request now: {error}")
    return error


def raise_translated(error: Exception, connection: Connection) -> NoReturn:
    """Raise what `translate` says, with the original as its cause."""
    translated = translate(error, connection)
    if translated is error:
        raise error
    raise translated from error


def raise_uncommitted(error: Exception, connection: Connection) -> NoReturn:
    """`raise_translated` for a statement that commits by itself: when the connection was lost
    meanwhile, CommitUnknown."""
    translated = translate(error, connection)
    if isinstance(translated, Unavailable) and connection.is_closed():
        raise CommitUnknown(str(translated)) from error
    raise_translated(error, connection)
