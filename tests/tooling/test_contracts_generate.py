"""`make proto`: offline, repeatable, typed, and stale code or a broken contract is noticed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import proto

ECHO = """\
syntax = "proto3";

package counterfoil.echo.v1;

import "buf/validate/validate.proto";
import "google/api/annotations.proto";

// Echo answers with what it was sent.
service EchoService {
  // Echo answers once.
  rpc Echo(EchoRequest) returns (EchoResponse) {
    option (google.api.http) = {post: "/v1/echo" body: "*"};
  }
}

// EchoRequest is what is sent.
message EchoRequest {
  // At most three characters.
  string text = 1 [(buf.validate.field).string.max_len = 3];
}

// EchoResponse is what was sent.
message EchoResponse {
  // The text.
  string text = 1;
}
"""

CALLER = """\
import grpc.aio
from counterfoil.echo.v1 import echo_pb2, echo_pb2_grpc


async def call(channel: grpc.aio.Channel) -> str:
    response = await echo_pb2_grpc.EchoServiceStub(channel).Echo(echo_pb2.EchoRequest(text="a"))
    return response.text
"""

VALIDATION = """\
import protovalidate
from counterfoil.echo.v1 import echo_pb2, echo_pb2_grpc

print(len(protovalidate.collect_violations(echo_pb2.EchoRequest(text="four"))))
print(len(protovalidate.collect_violations(echo_pb2.EchoRequest(text="abc"))))
"""


@pytest.fixture
def proto_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "proto"
    contract = folder / "counterfoil" / "echo" / "v1" / "echo.proto"
    contract.parent.mkdir(parents=True)
    contract.write_text(ECHO)
    return folder


@pytest.fixture
def project(proto_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the commands work on the small contract; return its file."""
    monkeypatch.setattr(proto, "PROTO_DIR", proto_dir)
    monkeypatch.setattr(proto, "GEN_DIR", tmp_path / "gen")
    monkeypatch.setattr(proto, "BUILD_DIR", tmp_path / "build")
    monkeypatch.setattr(proto, "BASELINE", tmp_path / "baseline.binpb")
    return proto_dir / "counterfoil" / "echo" / "v1" / "echo.proto"


def generated(proto_dir: Path, out_dir: Path) -> Path:
    out_dir.mkdir()
    proto.generate(proto_dir, out_dir)
    return out_dir


def test_generated_code_is_the_same_every_time(proto_dir: Path, tmp_path: Path) -> None:
    first = proto.read_tree(generated(proto_dir, tmp_path / "first"))
    second = proto.read_tree(generated(proto_dir, tmp_path / "second"))
    assert first == second
    assert str(tmp_path).encode() not in b"".join(first.values())


def test_limits_of_a_contract_hold_for_the_generated_messages(
    proto_dir: Path, tmp_path: Path
) -> None:
    out_dir = generated(proto_dir, tmp_path / "gen")
    command = [sys.executable, "-W", "error", "-c", VALIDATION]
    environment = os.environ | {"PYTHONPATH": str(out_dir)}
    answer = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert answer.stdout.split() == ["1", "0"]


def test_awaiting_a_generated_stub_passes_strict_type_checks(
    proto_dir: Path, tmp_path: Path
) -> None:
    out_dir = generated(proto_dir, tmp_path / "gen")
    (tmp_path / "caller.py").write_text(CALLER)
    config = {"include": ["caller.py"], "extraPaths": [str(out_dir)], "typeCheckingMode": "strict"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = [proto.script("pyright"), "--pythonpath", sys.executable]
    environment = os.environ | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    answer = subprocess.run(
        command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stdout


def test_check_notices_stale_generated_code_and_generation_mends_it(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert proto.generate_command(check=False) == 0
    assert proto.generate_command(check=True) == 0
    stale = proto.GEN_DIR / "counterfoil" / "gone_pb2.py"
    stale.write_text("")
    project.write_text(ECHO.replace("string text = 1;", "string word = 1;"))
    capfd.readouterr()
    assert proto.generate_command(check=True) == 1
    said = capfd.readouterr().out
    assert "left over  counterfoil/gone_pb2.py" in said
    assert "different  counterfoil/echo/v1/echo_pb2.py" in said
    assert proto.generate_command(check=False) == 0
    assert not stale.exists()
    assert proto.generate_command(check=True) == 0


@pytest.mark.usefixtures("project")
def test_lint_accepts_a_commented_contract_and_not_its_imports() -> None:
    proto.buf("lint")


def test_lint_refuses_a_field_without_comment(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    project.write_text(ECHO.replace("  // The text.\n", ""))
    with pytest.raises(proto.ContractError):
        proto.buf("lint")
    assert 'Field "text" should have a non-empty comment' in capfd.readouterr().out


def test_lint_refuses_an_unused_import(project: Path) -> None:
    project.write_text(ECHO.replace("import", 'import "google/protobuf/any.proto";\nimport', 1))
    with pytest.raises(proto.ContractError):
        proto.buf("lint")


def test_a_wrong_contract_is_an_error_not_an_empty_result(project: Path) -> None:
    project.write_text(ECHO.replace("message EchoResponse", "message Other"))
    with pytest.raises(proto.ContractError):
        proto.generate_command(check=False)
    assert not proto.GEN_DIR.exists()


@pytest.mark.usefixtures("project")
def test_nothing_breaks_before_the_first_baseline() -> None:
    proto.breaking_command()


def test_breaking_refuses_a_renamed_field(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    proto.write_image(proto.PROTO_DIR, proto.BASELINE, source_info=False)
    proto.breaking_command()
    project.write_text(ECHO.replace("string text = 1;", "string word = 1;"))
    with pytest.raises(proto.ContractError):
        proto.breaking_command()
    assert 'on message "EchoResponse" changed name from "text" to "word"' in capfd.readouterr().out


def test_breaking_accepts_a_dropped_import_and_a_new_field(project: Path) -> None:
    proto.write_image(proto.PROTO_DIR, proto.BASELINE, source_info=False)
    without_limit = ECHO.replace(" [(buf.validate.field).string.max_len = 3]", "")
    without_limit = without_limit.replace('import "buf/validate/validate.proto";\n', "")
    added = "string text = 1;\n  // More.\n  string more = 2;"
    project.write_text(without_limit.replace("string text = 1;", added))
    proto.breaking_command()
