"""Stored answers of one service."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from counterfoil.types.v1 import error_reason_pb2 as reasons
from google.protobuf.message import Message

from foundation.errors import Failure
from foundation.google import http_binding
from foundation.idempotency import keys
from foundation.storage import Connection, Database, SealRing, Unavailable

RETENTION_HOURS = 24

_SWEEP_S = 600.0
_SWEPT_MAX = 1000
_DIGEST_BYTES = 32
_CREATE = ("Create", "Fork")

# Waits for a transaction that claims the same key. No row: the key is taken, and not expired; the
# row is locked then, so that nobody erases it before its answer is read.
_CLAIM = """
INSERT INTO @.replays AS r (workspace_id, method, key_digest) VALUES ($1, $2, $3)
ON CONFLICT (workspace_id, method, key_digest) DO UPDATE
SET created_at = now(), resource_id = NULL, sealed = NULL
WHERE r.created_at < now() - $4 * interval '1 hour'
RETURNING (created_at AT TIME ZONE 'UTC')::date::text
"""

_STORED = """
SELECT sealed FROM @.replays WHERE workspace_id = $1 AND method = $2 AND key_digest = $3
"""

_ABOUT = """
SELECT key_digest, sealed FROM @.replays
WHERE workspace_id = $1 AND resource_id = $2 AND method = $3 AND sealed IS NOT NULL
FOR UPDATE
"""

_STORE = """
UPDATE @.replays SET resource_id = $4, sealed = $5
WHERE workspace_id = $1 AND method = $2 AND key_digest = $3
"""

_SWEEP = """
DELETE FROM @.replays WHERE (workspace_id, method, key_digest) IN (
    SELECT workspace_id, method, key_digest FROM @.replays
    WHERE created_at < now() - $1 * interval '1 hour'
    ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED
) RETURNING 1
"""

_log = structlog.get_logger("counterfoil.idempotency")


class Replays:
    """Answers of one service's POST calls, for 24 hours. Calls without a key do not come here."""

    def __init__(self, db: Database, ring: SealRing, schema: str) -> None:
        self._db = db
        self._ring = ring
        self._schema = schema
        self._sql = {
            name: sql.replace("@", schema)
            for name, sql in (
                ("claim", _CLAIM),
                ("stored", _STORED),
                ("store", _STORE),
                ("sweep", _SWEEP),
            )
        }

    @property
    def statements(self) -> list[str]:
        """The SQL, for a test that prepares it."""
        return list(self._sql.values())

    async def run(
        self,
        method: Any,
        workspace_id: str,
        key: str,
        request: Message,
        work: Callable[[], Awaitable[Message]],
    ) -> Message:
        """The answer of `work`, or the stored one when the key answered an equal request before.

        What `work` commits to the service's database and its answer are durable together. A failed
        call stores nothing: its key is free again. Raises CONFLICT when the key stands for another
        request, and what `work` raises.
        """
        path = f"/{method.containing_service.full_name}/{method.name}"
        row = (workspace_id, path, hashlib.sha256(key.encode()).digest())
        asked = hashlib.sha256(request.SerializeToString(deterministic=True)).digest()
        async with self._db.joint("idempotency.answer") as connection:
            date: str | None = await connection.fetchval(self._sql["claim"], *row, RETENTION_HOURS)
            if date is None:
                return await self._replay(connection, method, row, asked)
            with keys.claimed(keys.Claim(workspace_id, path, key, date)):
                answer = await work()
            sealed = self._ring.seal(asked + answer.SerializeToString(), *self._identity(row))
            await connection.execute(
                self._sql["store"], *row, _resource(method, request, answer), sealed
            )
        return answer

    async def sweep(self) -> None:
        """Delete what is older than the retention, in small steps, forever."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            try:
                while await self.sweep_once() == _SWEPT_MAX:
                    pass
            except Unavailable as error:
                _log.warning("expired answers are kept for now", error=str(error))

    async def sweep_once(self) -> int:
        """Delete a bounded number of expired answers; how many there were."""
        rows = await self._db.commit_one(
            "idempotency.sweep", self._sql["sweep"], RETENTION_HOURS, _SWEPT_MAX
        )
        return len(rows)

    async def _replay(
        self, connection: Connection, method: Any, row: tuple[str, str, bytes], asked: bytes
    ) -> Message:
        from google.protobuf import message_factory

        sealed: bytes = await connection.fetchval(self._sql["stored"], *row)
        opened = self._ring.open(sealed, *self._identity(row))
        if opened[:_DIGEST_BYTES] != asked:
            raise Failure(
                reasons.ERROR_REASON_CONFLICT,
                "this key was used for another request within the last 24 hours;"
                " use a new key for a new request",
                path=keys.HEADER,
            )
        answer = message_factory.GetMessageClass(method.output_type)
        return answer.FromString(opened[_DIGEST_BYTES:])

    def _identity(self, row: tuple[str, str, bytes]) -> tuple[str, ...]:
        return _identity(self._schema, *row)


async def empty_answers(
    connection: Connection, ring: SealRing, schema: str, workspace_id: str, resource: str, path: str
) -> None:
    """Empty what is stored of the answers of one method about a resource: a repeat still finds
    that the request was carried out, and is told nothing else."""
    rows = await connection.fetch(_ABOUT.replace("@", schema), workspace_id, resource, path)
    for row in rows:
        identity = _identity(schema, workspace_id, path, row["key_digest"])
        asked = ring.open(row["sealed"], *identity)[:_DIGEST_BYTES]
        sealed = ring.seal(asked, *identity)
        key = (workspace_id, path, row["key_digest"])
        await connection.execute(_STORE.replace("@", schema), *key, resource, sealed)


def _identity(schema: str, workspace_id: str, path: str, key_digest: bytes) -> tuple[str, ...]:
    return f"{schema}.replays", "sealed", workspace_id, path, key_digest.hex()


def _resource(method: Any, request: Message, answer: Message) -> str:
    """Id of what a call is about: that of what it created, else the first one in its path."""
    rule = method.GetOptions().Extensions[http_binding]
    _, _, behind = rule.post.partition("{")
    if behind and not method.name.startswith(_CREATE):
        return str(getattr(request, behind.partition("}")[0]))
    created = getattr(answer, rule.response_body) if rule.response_body else answer
    return str(getattr(created, "id", ""))
