"""Secrets appear nowhere, and content only sealed: in logs, errors, columns and data files."""

import base64
import json
import random
import string
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import pytest

from tests.support.chat import is_idle, is_over, result
from tests.support.model import Model, script, use
from tests.support.postgres import SessionPostgres, run_aside
from tests.support.system import Mode, System, system_of
from tests.support.zygote import Zygote

CANARY = "canary"

TABLES = """
SELECT table_schema, table_name FROM information_schema.tables
WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('pg_catalog', 'information_schema')
"""

PLAIN = {
    ("registry.environments.name_utf8", "environment name"),
    ("ledger.sessions.agent_name", "agent name"),
    ("ledger.calls.name", "tool name"),
    ("ledger.calls.name", "unknown tool name"),
    ("journal.operations.tool_name", "tool name"),
    ("journal.operations.tool_name", "unknown tool name"),
}
"""Columns that hold names in the clear, and which: what docs/operating/encryption.md promises."""


@dataclass(frozen=True)
class Canaries:
    """Recognisable values: what they are, and how they look."""

    secrets: dict[str, str]
    content: dict[str, str]

    @classmethod
    def make(cls) -> "Canaries":
        return cls(
            {name: _canary() for name in ("api key", "service key", "model key", "wrong key")},
            {
                name: _canary()
                for name in (
                    "agent name",
                    "agent description",
                    "agent metadata",
                    "system prompt",
                    "tool name",
                    "tool description",
                    "tool schema",
                    "environment name",
                    "environment description",
                    "environment metadata",
                    "session title",
                    "session metadata",
                    "message",
                    "system message",
                    "answer",
                    "tool input",
                    "tool result",
                    "platform input",
                    "refused input",
                    "unknown tool name",
                    "provider error",
                )
            },
        )

    def found_in(self, raw: bytes, names: dict[str, str]) -> set[str]:
        """Names of the values that appear in `raw`, plainly or in a usual encoding."""
        return {name for name, value in names.items() if any(x in raw for x in _forms(value))}


def _canary() -> str:
    # No letters that JSON, URLs or tool names would change.
    return CANARY + "".join(random.choices(string.ascii_lowercase + string.digits, k=26))


def _forms(value: str) -> Iterator[bytes]:
    """A value as it is, in hex, and in base64 whatever stands before it."""
    raw = value.encode()
    yield raw
    yield raw.hex().encode()
    yield raw.hex().upper().encode()
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + raw)
        yield encoded[4 if shift else 0 : -4]


@dataclass
class Told:
    """A system that was told every canary, and what that left behind."""

    canaries: Canaries
    system: System
    dsn: str
    errors: list[httpx2.Response] = field(default_factory=list[httpx2.Response])
    logs: dict[str, bytes] = field(default_factory=dict[str, bytes])
    columns: dict[str, set[bytes]] = field(default_factory=dict[str, set[bytes]])
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    seal_keys: str = ""

    def content(self, name: str) -> str:
        return self.canaries.content[name]


@pytest.fixture(scope="module", params=["embedded", pytest.param("split", marks=pytest.mark.full)])
def told(
    request: pytest.FixtureRequest, zygote: Zygote, model: Model, postgres: SessionPostgres
) -> Told:
    """What is left of a system that ran with every canary, and that failed in many ways."""
    return run_aside(_tell(request.param, zygote, model, postgres))


async def _tell(mode: Mode, zygote: Zygote, model: Model, postgres: SessionPostgres) -> Told:
    canaries = Canaries.make()
    environment = {
        "COUNTERFOIL_API_KEY": canaries.secrets["api key"],
        "COUNTERFOIL_MODEL_API_KEY": canaries.secrets["model key"],
        "COUNTERFOIL_LOG_LEVEL": "debug",
        "ANTHROPIC_LOG": "debug",
        "PYTHONASYNCIODEBUG": "1",
    }
    async with system_of(mode, zygote, model, postgres, **environment) as system:
        key_file = system.folder / "service_key"
        key_file.write_text(canaries.secrets["service key"])
        key_file.chmod(0o600)
        await system.start()
        told = Told(canaries, system, system.environment["COUNTERFOIL_LEDGER_DATABASE_URL"])
        async with _client(told) as client:
            session = await _converse(told, client)
            await _provoke(told, client, session)
            await _fail_inside(told, client, session)
        told.logs = {log.name: log.read_bytes() for log in system.folder.glob("*.log")}
        told.seal_keys = (system.folder / "seal_keys.json").read_text()
        await _read_database(told)
    return told


def _client(told: Told, key: str = "api key") -> httpx2.AsyncClient:
    headers = {"authorization": f"Bearer {told.canaries.secrets[key]}"}
    return httpx2.AsyncClient(base_url=told.system.rest_url, headers=headers, timeout=20)


async def _post(client: httpx2.AsyncClient, path: str, body: dict[str, Any]) -> Any:
    response = await client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def _converse(told: Told, client: httpx2.AsyncClient) -> str:
    """A session in which every canary of content took part; its id."""
    c = told.content
    schema = {"type": "object", "properties": {c("tool schema"): {"type": "string"}}}
    tool = {
        "type": "custom",
        "name": c("tool name"),
        "description": c("tool description"),
        "input_schema": schema,
    }
    agent = await _post(
        client,
        "/v1/agents",
        {
            "model": "claude-sonnet-4-5",
            "name": c("agent name"),
            "description": c("agent description"),
            "metadata": {"about": c("agent metadata")},
            "system": c("system prompt"),
            "tools": [tool],
        },
    )
    environment = await _post(
        client,
        "/v1/environments",
        {
            "name": c("environment name"),
            "description": c("environment description"),
            "metadata": {"about": c("environment metadata")},
        },
    )
    session = await _post(
        client,
        "/v1/sessions",
        {
            "agent": agent["id"],
            "environment_id": environment["id"],
            "title": c("session title"),
            "metadata": {"about": c("session metadata")},
        },
    )
    calls = [
        use(c("tool name"), text=c("tool input")),
        use("note", text=c("platform input")),
        use(c("unknown tool name"), text=c("refused input")),
    ]
    asked = await _say(
        client,
        session["id"],
        _message(script({"content": calls}, c("answer")), c("message")),
        {"type": "system.message", "content": [_text(c("system message"))]},
    )
    (waiting,) = [event for event in asked if event["type"] == "agent.custom_tool_use"]
    done = await _say(client, session["id"], result(waiting["id"], c("tool result")))
    assert is_over(done[-1])
    assert c("answer") in json.dumps(done)
    assert len(told.system.effects.all) == 1
    return session["id"]


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _message(*texts: str) -> dict[str, Any]:
    return {"type": "user.message", "content": [_text(text) for text in texts]}


async def _say(
    client: httpx2.AsyncClient, session: str, *events: dict[str, Any]
) -> list[dict[str, Any]]:
    """Sends events; what the stream brings until the session waits."""
    found: list[dict[str, Any]] = []
    path = f"/v1/sessions/{session}/events"
    async with client.stream("GET", f"{path}/stream") as stream:
        await _post(client, path, {"events": list(events)})
        async for line in stream.aiter_lines():
            if line.startswith("data: ") and '"type":"ping"' not in line:
                found.append(json.loads(line.removeprefix("data: ")))
                if is_idle(found[-1]):
                    break
    return found


async def _provoke(told: Told, client: httpx2.AsyncClient, session: str) -> None:
    """Bad requests of every kind; their answers are kept."""
    c = told.content
    events = f"/v1/sessions/{session}/events"
    bad: list[tuple[str, str, Any]] = [
        ("POST", events, {"events": [{"type": c("message")}]}),
        ("POST", events, {"events": [{"type": "user.message", "content": c("message")}]}),
        ("POST", events, {"events": [{**_message(c("message")), c("answer"): 1}]}),
        ("POST", events, {"events": [_message("")]}),
        ("POST", events, {"events": [result("sevt_" + "0" * 26, c("tool result"))]}),
        ("POST", events, {"events": [_message(c("message"))], "workspace_id": "wrkspc_x"}),
        ("POST", events, b'{"events": [' + c("message").encode()),
        ("POST", events, b'\xff{"events": "' + c("message").encode() + b'"}'),
        ("POST", events, b"[" * 100),
        ("POST", events, {"events": [_message("x" * 300_000 + c("message"), "")]}),
        ("POST", "/v1/agents", {"model": c("system prompt"), "name": "", "system": 7}),
        ("POST", "/v1/agents", {"model": "claude-sonnet-4-5", "name": c("agent name") * 100}),
        ("POST", "/v1/environments", {"name": c("environment name")}),
        ("POST", "/v1/sessions", {"agent": "agent_x", "environment_id": "env_x"}),
        ("GET", f"{events}?limit={c('message')}", None),
        ("GET", f"{events}?page={c('message')}", None),
        ("GET", "/v1/sessions/sesn_" + "0" * 26, None),
        ("GET", "/v1/nothing", None),
        ("PUT", events, None),
    ]
    for method, path, body in bad:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        response = await client.request(method, path, content=b"" if body is None else content)
        assert 400 <= response.status_code < 500, (method, path, response.text)
        told.errors.append(response)
    async with _client(told, "wrong key") as stranger, _client(told, "service key") as service:
        for caller in (stranger, service):
            told.errors.append(await caller.get(events))
            told.errors.append(await caller.post(events, json={"events": [_message("x")]}))
            assert [one.status_code for one in told.errors[-2:]] == [401, 401]


async def _fail_inside(told: Told, client: httpx2.AsyncClient, session: str) -> None:
    """The provider refuses and repeats what it was told; then the database is away."""
    error = {"status": 400, "message": told.content("provider error")}
    done = await _say(client, session, _message(script({"error": error}), told.content("message")))
    assert "session.error" in [event["type"] for event in done]
    connection = await asyncpg.connect(told.dsn)
    try:
        async with connection.transaction():
            await connection.execute("ALTER TABLE ledger.log RENAME TO away")
            await connection.execute("COMMIT")
            path = f"/v1/sessions/{session}/events"
            body = {"events": [_message(told.content("message"))]}
            told.errors.append(await client.post(path, json=body))
            told.errors.append(await client.get(path))
            assert [one.status_code for one in told.errors[-2:]] == [500, 500]
            await connection.execute("BEGIN")
            await connection.execute("ALTER TABLE ledger.away RENAME TO log")
    finally:
        await connection.close()


async def _read_database(told: Told) -> None:
    """Every value of every column, and every file of the server that knows a canary."""
    connection = await asyncpg.connect(told.dsn)
    try:
        for table in await connection.fetch(TABLES):
            name = f"{table['table_schema']}.{table['table_name']}"
            for row in await connection.fetch(f"SELECT * FROM {name}"):
                for column, value in row.items():
                    told.columns.setdefault(f"{name}.{column}", set()).add(_raw(value))
        await connection.execute("CHECKPOINT")
        folder = Path(await connection.fetchval("SHOW data_directory"))
    finally:
        await connection.close()
    told.files = _files_with(CANARY.encode(), folder)


def _files_with(value: bytes, folder: Path) -> dict[str, bytes]:
    found = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {str(path.relative_to(folder)): data for path, data in found.items() if value in data}


def _raw(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, list | tuple):
        return b"\0".join(_raw(one) for one in value)
    return str(value).encode()


def test_no_secret_and_no_content_is_in_any_log_line(told: Told) -> None:
    assert len(told.logs) == len(told.system.roles)
    written = b"".join(told.logs.values())
    # The lines that must be there, so that this looks at something.
    assert b"unexpected error" in written
    assert told.canaries.found_in(written, told.canaries.secrets) == set()
    assert told.canaries.found_in(written, told.canaries.content) == set()


def test_no_secret_is_in_any_error(told: Told) -> None:
    assert {401, 400, 404, 405, 409, 500} >= {one.status_code for one in told.errors} >= {401, 500}
    for response in told.errors:
        assert response.json()["type"] == "error"
        raw = response.content + repr(response.headers).encode()
        assert told.canaries.found_in(raw, told.canaries.secrets) == set()
        if response.status_code >= 500:
            assert b"away" not in response.content
            assert told.canaries.found_in(response.content, told.canaries.content) == set()


def test_columns_hold_content_only_sealed(told: Told) -> None:
    assert len({place.rpartition(".")[0] for place in told.columns}) >= 15
    plain = {
        (place, name)
        for place, values in told.columns.items()
        for name in told.canaries.found_in(b"\0".join(values), told.canaries.content)
    }
    assert plain == PLAIN


def test_columns_hold_no_secret(told: Told) -> None:
    keys = json.loads(told.seal_keys)["keys"].values()
    raw_keys = [base64.b64decode(key) for key in keys]
    for place, values in told.columns.items():
        raw = b"\0".join(values)
        assert told.canaries.found_in(raw, told.canaries.secrets) == set(), place
        assert not any(key in raw for key in raw_keys), place


def test_data_files_hold_no_secret_and_no_content(told: Told) -> None:
    """Indexes, dead rows and the write-ahead log are no columns."""
    allowed = {name for _, name in PLAIN}
    content = {name: v for name, v in told.canaries.content.items() if name not in allowed}
    assert told.files  # names are there, so that this looks at something
    for path, data in told.files.items():
        found = [n for n, v in (told.canaries.secrets | content).items() if v.encode() in data]
        assert not found, path
