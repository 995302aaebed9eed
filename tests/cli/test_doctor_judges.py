"""What the doctor says of what it measured."""

import pytest

from cli import doctor_findings as judge
from cli.doctor_findings import State
from tools import interpreter

LOCK = [
    "# made by a tool",
    "alembic==1.17.0 \\",
    "    --hash=sha256:00",
    "betterproto2[all]==0.9 \\",
    "colorama==0.4 ; sys_platform == 'win32' \\",
]


@pytest.mark.parametrize(
    ("version", "state"),
    [((3, 10), "failed"), ((3, 11), "ok"), ((3, 12), "ok"), ((3, 13), "failed")],
)
def test_python(version: tuple[int, int], state: str) -> None:
    assert judge.python(version).state == state


def test_the_doctor_and_the_installer_want_the_same_python() -> None:
    wanted = (interpreter.VERSION_MIN, interpreter.VERSION_END)
    assert wanted == (judge.VERSION_MIN, judge.VERSION_END)


@pytest.mark.parametrize(
    ("installed", "state", "said"),
    [
        ({"alembic": "1.17.0", "betterproto2": "0.9"}, "ok", "2 as locked"),
        ({"alembic": "1.16.0", "betterproto2": "0.9"}, "failed", "alembic 1.16.0 instead of"),
        ({"alembic": "1.17.0"}, "failed", "betterproto2 is missing"),
        ({"alembic": "1.17.0", "betterproto2": "0.9", "colorama": "0.3"}, "failed", "colorama"),
    ],
)
def test_packages(installed: dict[str, str], state: str, said: str) -> None:
    found = judge.packages(LOCK, installed)
    assert (found.state, said in found.found) == (state, True)


@pytest.mark.parametrize(
    ("free", "state"), [(2 << 30, "ok"), ((1 << 30) - 1, "warning"), ((100 << 20) - 1, "failed")]
)
def test_disk(free: int, state: str) -> None:
    assert judge.disk(free, "/").state == state


@pytest.mark.parametrize(
    ("offsets", "state", "said"),
    [
        ({}, "skipped", "nothing"),
        ({"a": 0.1, "b": -5.0}, "ok", "5.0 s ahead of b"),
        ({"a": 5.1, "b": 0.0}, "warning", "5.1 s behind a"),
    ],
)
def test_clock(offsets: dict[str, float], state: str, said: str) -> None:
    found = judge.clock(offsets)
    assert (found.state, said in found.found) == (state, True)


@pytest.mark.parametrize(
    ("current", "state", "embedded", "said"),
    [
        ("2", "ok", False, ""),
        ("1", "failed", False, "counterfoil migrate"),
        (None, "failed", True, "counterfoil run"),
    ],
)
def test_migrations(current: str | None, state: str, embedded: bool, said: str) -> None:
    found = judge.migrations("ledger", current, "2", embedded=embedded)
    assert found.state == state
    assert said in found.advice


def test_whatever_is_wrong_says_what_to_do() -> None:
    wrong = [
        judge.python((3, 10)),
        judge.packages(LOCK, {}),
        judge.disk(0, "/"),
        judge.clock({"a": 9.0}),
        judge.migrations("ledger", None, "2", embedded=False),
    ]
    assert all(one.advice for one in wrong if one.state is not State.OK)
