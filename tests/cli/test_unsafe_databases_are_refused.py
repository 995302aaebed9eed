"""A PostgreSQL that could lose an answered commit is refused at start, by name of the setting."""

from pathlib import Path

import pytest

from cli.composition import STATEFUL
from foundation.postgres import EmbeddedPostgres, settings
from tests.cli.support import one_line, refused


@pytest.mark.parametrize(
    "name",
    [
        "fsync",
        pytest.param("full_page_writes", marks=pytest.mark.full),
        pytest.param("synchronous_commit", marks=pytest.mark.full),
    ],
)
async def test_a_server_with_it_off_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    server = EmbeddedPostgres()
    monkeypatch.setitem(settings.DURABLE, name, "off")
    dsn = await server.start(tmp_path / "postgres")
    try:
        chosen = {f"COUNTERFOIL_{one.upper()}_DATABASE_URL": dsn for one in STATEFUL}
        done = refused(tmp_path / "data", **chosen)
        assert done.returncode == 1
        assert f"{name} = off" in one_line(done)
    finally:
        await server.stop()
