"""`counterfoil doctor` on installations that are well, and that are not."""

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import asyncpg

from tests.cli.looking import look
from tests.support.system import System


async def test_a_running_installation_is_well_until_something_is_taken_away(
    running_system: System, tmp_path: Path
) -> None:
    system = running_system
    own = {"COUNTERFOIL_PORT": system.rest_url.rpartition(":")[2]}
    well = await look(system, "doctor", "-o", "json", **own)
    assert not [row for row in well.rows if row["state"] == "failed"]
    assert well.err == "", "progress is for terminals"
    found = {row["check"]: row for row in well.rows}
    assert "synchronous_commit on" in found["PostgreSQL of registry"]["found"]
    assert found["schema of ledger"]["state"] == "ok"
    assert found["service ledger"]["found"].endswith("serves")
    assert found[f"REST port {own['COUNTERFOIL_PORT']}"]["found"].endswith("is served and ready")
    assert found["model"]["found"].endswith("answers; profile offline")
    assert found["clock"]["state"] == "ok"
    await _forget_a_revision(system)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ill = await look(
            system,
            "doctor",
            "-o",
            "json",
            COUNTERFOIL_PORT=str(port),
            COUNTERFOIL_TOOLS_ADDRESS="127.0.0.1:9",
            COUNTERFOIL_SERVICE_KEY_FILE=str(tmp_path / "none"),
            COUNTERFOIL_MODEL_BASE_URL="http://127.0.0.1:9",
            COUNTERFOIL_S3_ENDPOINT="http://127.0.0.1:9",
        )
    assert ill.code == 1
    assert _failed(ill.out) == {
        "service key": "COUNTERFOIL_SERVICE_KEY_FILE",
        "schema of journal": "counterfoil migrate",
        "object store": "COUNTERFOIL_S3_",
        f"REST port {port}": "COUNTERFOIL_PORT",
        "service tools": "counterfoil serve tools",
        "model": "COUNTERFOIL_MODEL_BASE_URL",
    }


async def test_a_folder_that_was_never_used_is_fine_and_a_broken_one_is_not(
    system: System, tmp_path: Path
) -> None:
    fresh = {f"COUNTERFOIL_{name.upper()}_ADDRESS": "" for name in system.addresses}
    fresh |= {name: "" for name in system.environment if name.endswith("_DATABASE_URL")}
    fresh |= {"COUNTERFOIL_DATA_DIR": str(tmp_path / "new"), "COUNTERFOIL_PORT": "0"}
    fresh |= {"COUNTERFOIL_GRPC_PORT": "0", "COUNTERFOIL_MODEL_BASE_URL": ""}
    fresh["COUNTERFOIL_SEAL_KEYS_FILE"] = ""
    key = tmp_path / "key"
    key.write_text("k" * 43)
    key.chmod(0o600)
    fresh["COUNTERFOIL_SERVICE_KEY_FILE"] = str(key)
    broken = tmp_path / "broken"
    (broken / "postgres" / "cluster").mkdir(parents=True)
    broken.chmod(0o755)
    well, ill = await asyncio.gather(
        look(system, "doctor", **fresh),
        look(system, "doctor", "-o", "json", **{**fresh, "COUNTERFOIL_DATA_DIR": str(broken)}),
    )
    assert well.code == 0, well.out
    assert well.out.splitlines()[-1] == "Nothing is in the way."
    assert not (tmp_path / "new").exists()
    assert ill.code == 1
    assert _failed(ill.out) == {"data folder": "chmod 700", "seal keys": "Restore it"}


def _failed(out: str) -> dict[str, str]:
    """Each failed check with the words that its advice must hold, as far as they are known."""
    words = (
        "COUNTERFOIL_SERVICE_KEY_FILE",
        "counterfoil migrate",
        "COUNTERFOIL_PORT",
        "COUNTERFOIL_S3_",
        "counterfoil serve tools",
        "COUNTERFOIL_MODEL_BASE_URL",
        "chmod 700",
        "Restore it",
    )
    rows: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    return {
        row["check"]: next((w for w in words if w in row["advice"]), row["advice"])
        for row in rows
        if row["state"] == "failed"
    }


async def _forget_a_revision(system: System) -> None:
    connection = await asyncpg.connect(system.environment["COUNTERFOIL_JOURNAL_DATABASE_URL"])
    try:
        await connection.execute("UPDATE journal.alembic_version SET version_num = '0001_journal'")
    finally:
        await connection.close()
