"""Every code block of the README and of the documents works as it is printed.

`HOW` says how each block is run. A block that is not in it, or an entry without a block, fails:
nothing is skipped in silence.
"""

import ast
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import anthropic
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from cli.demo_stage import Server, counterfoil, without_settings
from foundation.settings import DEVELOPMENT_KEY
from tests.conformance.installs import DRIVERS, GO_CODE
from tests.readme.documents import REPO, RUNNABLE, SHOWN, Block, blocks
from tools import proto

SECONDS_MAX = 60
SESSION = "sesn_01m8n2v7jq9f1w3c5t8xk0r6ah"
README_URL = "http://127.0.0.1:8080"
CHOOSE_PROFILE = (
    "from foundation.settings import Settings; from services.tools.profiles import choose;"
    " s = Settings(); print('profile', choose(s.model_profile, s.model_base_url).id)"
)

How = Callable[[Block, Server, Path], None]


def serves(block: Block, server: Server, _: Path) -> None:
    """`make run` installs what is missing and is `counterfoil run`, which the fixture started."""
    (command,) = block.code.split("\n")[:-1]
    dry = [*command.split(), "-n", "--no-print-directory"]
    planned = subprocess.run(dry, cwd=REPO, capture_output=True, text=True, check=True)
    assert planned.stdout.splitlines()[-1] == ".venv/bin/counterfoil run"
    assert server.pid > 0


def serves_with_a_real_model(block: Block, _: Server, folder: Path) -> None:
    """The same, with exports that settings and profiles accept."""
    *exports, command = block.code.splitlines()
    assert command == "make run"
    done = subprocess.run(
        ["bash", "-euc", "\n".join([*exports, f'"{sys.executable}" -c "{CHOOSE_PROFILE}"'])],
        env=environment(),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "profile anthropic\n", done.stderr


def python(*words: str, folder: Path, typed: str = "") -> "subprocess.CompletedProcess[str]":
    """Python, once it has ended; `typed` is its standard input."""
    return subprocess.run(
        [sys.executable, *words],
        input=typed,
        env=environment(),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def answers_when_pasted(block: Block, server: Server, folder: Path) -> None:
    """Typed line by line into the interactive interpreter, as somebody does who pastes it."""
    assert block.code.count(README_URL) == 1
    typed = block.code.replace(README_URL, server.url) + "\n"
    done = python("-i", "-q", folder=folder, typed=typed)
    assert "Traceback" not in done.stderr, done.stderr
    assert "clock answered: " in done.stdout
    assert len(block.code.splitlines()) <= 20


def asks_a_human(block: Block, server: Server, folder: Path) -> None:
    """The example, with a human who types one word."""
    more = {"COUNTERFOIL_EXAMPLE_BASE_URL": server.url}
    arguments = block.code.split()
    assert arguments[0] == ".venv/bin/python"
    command = [sys.executable, *arguments[1:], "--state", str(folder / "state.sqlite3")]
    done = subprocess.run(
        command,
        input="reject\n",
        env=environment() | more,
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Receipt r02: Rejected (after human review)" in done.stdout


def starts_processes(block: Block, _: Server, folder: Path) -> None:
    """Each line is a command that exists (tests of the split mode run them for real)."""
    for line in block.code.splitlines():
        name, *arguments = line.split()
        assert name == "counterfoil"
        run_counterfoil([*arguments, "--help"], environment(), folder)


def reads_a_session(block: Block, server: Server, folder: Path) -> None:
    """Each command on a session that exists; `turns release` on no turn."""
    session_id = new_session(server)
    own = server.environment()
    printed: dict[str, str] = {}
    for line in block.code.splitlines():
        name, *arguments = line.split()
        assert name == "counterfoil"
        if "tail" in arguments:
            arguments.append("--no-follow")
        if "release" in arguments:
            arguments = [*arguments[:2], "--help"]
        given = [session_id if one.startswith("sesn_") else one for one in arguments]
        printed[" ".join(arguments[:2])] = run_counterfoil(given, own, folder)
    assert "Nothing is in the way." in printed["doctor"]
    assert "Everything holds." in printed[f"verify {SESSION}"]
    assert session_id in printed["sessions list"]


def redacts_a_message(block: Block, server: Server, folder: Path) -> None:
    """The message of a session whose turn is over."""
    session_id = new_session(server)
    with anthropic.Anthropic(base_url=server.url, api_key=DEVELOPMENT_KEY) as client:
        log = client.beta.sessions.events
        with log.stream(session_id) as stream:
            log.send(
                session_id,
                events=[
                    {"type": "user.message", "content": [{"type": "text", "text": "A key: canary"}]}
                ],
            )
            next(event for event in stream if event.type == "session.status_idle")
        (message,) = [e for e in log.list(session_id) if e.type == "user.message"]
    name, *arguments = block.code.split()
    assert name == "counterfoil"
    given = [session_id if one == SESSION else one for one in arguments]
    given = [message.id if one.startswith("sevt_") else one for one in given]
    own = server.environment()
    assert "redacted" in run_counterfoil(given, own, folder)
    events = run_counterfoil(["sessions", "events", session_id, "-o", "json"], own, folder)
    assert "(this message was redacted)" in events


def repeats_and_looks(block: Block, server: Server, folder: Path) -> None:
    """On a session that exists."""
    assert block.code.count(README_URL) == block.code.count(SESSION) == 1
    code = block.code.replace(README_URL, server.url).replace(SESSION, new_session(server))
    done = python("-c", code, folder=folder)
    assert done.returncode == 0, done.stderr
    waiting, proof = map(ast.literal_eval, done.stdout.splitlines())
    assert waiting == {"data": [], "next_page": None}
    assert proof["holds"] is True


def forks(block: Block, server: Server, folder: Path) -> None:
    """Of a session that exists."""
    assert block.code.count(README_URL) == block.code.count(SESSION) == 1
    code = block.code.replace(README_URL, server.url).replace(SESSION, new_session(server))
    done = python("-c", code, folder=folder)
    assert (done.returncode, done.stdout) == (0, "plan B True\n"), done.stderr


def writes_the_contracts(block: Block, _: Server, folder: Path) -> None:
    """The descriptor set holds every contract and all that it imports."""
    target = folder / "contracts.binpb"
    proto.write_image(proto.PROTO_DIR, target, source_info=True)
    names = {file.name for file in FileDescriptorSet.FromString(target.read_bytes()).file}
    assert {"buf/validate/validate.proto", "google/api/annotations.proto"} < names
    assert set(proto.contract_names(proto.PROTO_DIR)) < names
    dry = subprocess.run(
        [*block.code.split(), "-n", "--no-print-directory"],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=True,
    )
    assert dry.stdout.splitlines()[-1] == ".venv/bin/python -m tools.proto bundle"


def writes_go_code(block: Block, _: Server, __: Path) -> None:
    """The steps that built the Go client of the conformance tests, which runs against a server."""
    copied, *gets, generate = (line.split() for line in block.code.splitlines())
    assert Path(copied[1]) == (DRIVERS / "go" / "buf.gen.yaml").relative_to(REPO)
    module = (DRIVERS / "go" / "go.mod").read_text()
    libraries, tools = ([word for word in get[2:] if word != "-tool"] for get in gets)
    assert all(f"{library} v" in module for library in libraries)
    assert all(f"\t{tool}\n" in module for tool in tools)
    assert generate == ["buf", *GO_CODE]


def exports(block: Block, server: Server, folder: Path) -> None:
    """A whole export of a new session."""
    (command,) = block.code.splitlines()
    session = new_session(server)
    words = command.replace('"$SESSION"', session).split()
    assert words.pop(0) == "counterfoil"
    run_counterfoil(words, server.environment(), folder)
    assert b'"type":"export.end"' in (folder / "session.jsonl").read_bytes().splitlines()[-1]


HOW: dict[str, How] = {
    "docs/coding/forks.md: from anthropic import Anthropic": forks,
    "docs/coding/requests.md: import uuid": repeats_and_looks,
    "docs/reference/contracts.md: make contracts": writes_the_contracts,
    "docs/reference/contracts.md: cp tests/conformance/drivers/go/buf.gen.yaml .": writes_go_code,
    "README.md: make run": serves,
    "README.md: .venv/bin/python -m examples.hitl_gate": asks_a_human,
    "README.md: import time": answers_when_pasted,
    "README.md: export COUNTERFOIL_MODEL_BASE_URL=https://api.anthropic.com": (
        serves_with_a_real_model
    ),
    "docs/operating/redaction.md: counterfoil context redact"
    f" {SESSION} --event sevt_01m8n2v7jq9f1w3c5t8xk0r6ah --reason leaked": redacts_a_message,
    "docs/operating/settings.md: export COUNTERFOIL_MODEL_BASE_URL=https://api.anthropic.com": (
        serves_with_a_real_model
    ),
    'docs/operating/export.md: counterfoil export "$SESSION" --output session.jsonl': exports,
    "docs/operating/settings.md: counterfoil migrate": starts_processes,
    "docs/operating/settings.md: counterfoil doctor": reads_a_session,
    "examples/hitl_gate/README.md: .venv/bin/python -m examples.hitl_gate": asks_a_human,
}
"""How each block is run, by its document and first line."""


def test_every_block_is_listed_and_every_entry_is_a_block() -> None:
    assert {block.language for block in blocks()} <= {*RUNNABLE, *SHOWN}
    names = [block.name for block in blocks() if block.language in RUNNABLE]
    assert sorted(names) == sorted(HOW)


@pytest.mark.parametrize(
    "block",
    [block for block in blocks() if block.name in HOW],
    ids=lambda block: block.name if isinstance(block, Block) else "",
)
def test_the_block_works(block: Block, server: Server, tmp_path: Path) -> None:
    HOW[block.name](block, server, tmp_path)


def environment() -> dict[str, str]:
    """A reader's environment: nothing of ours is set, and the checkout can be imported."""
    path = os.pathsep.join([str(REPO), str(REPO / "gen" / "python")])
    return without_settings() | {"PYTHONPATH": path}


def run_counterfoil(arguments: list[str], own: dict[str, str], folder: Path) -> str:
    done = subprocess.run(
        counterfoil(*arguments),
        env=own | {"PYTHONPATH": environment()["PYTHONPATH"]},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def new_session(server: Server) -> str:
    with anthropic.Anthropic(base_url=server.url, api_key=DEVELOPMENT_KEY) as client:
        environment = client.beta.environments.create(name=f"documents {uuid.uuid4()}")
        agent = client.beta.agents.create(name="documents", model="any")
        session = client.beta.sessions.create(agent=agent.id, environment_id=environment.id)
        return session.id
