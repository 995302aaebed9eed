"""The log's SQL is prepared against the migrated schema."""

import pytest

from foundation.storage.testing import assert_sql_prepares
from services.ledger import fork_store, log_page_store, log_store, pending_store


@pytest.mark.parametrize(
    ("module", "count"), [(log_store, 2), (log_page_store, 9), (pending_store, 1), (fork_store, 8)]
)
async def test_every_statement_prepares(dsn: str, module: object, count: int) -> None:
    assert await assert_sql_prepares(module, dsn) == count  # pyright: ignore[reportArgumentType]
