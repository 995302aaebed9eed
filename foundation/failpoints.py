"""Named points where a test may kill, pause or fail a process.

Every commit passes two of them (`<name>.before` and `<name>.after`, see
`foundation.storage.Database.commit`). Nothing happens unless one of these is set:

- `COUNTERFOIL_FAILPOINTS`: comma separated `<name>=<action>@<n>`; the action runs at the n-th hit
  of that name in this process (`@1` when left out). `kill` is SIGKILL of this process; `killall`
  first kills every process tree named by `COUNTERFOIL_FAILPOINTS_PIDS`, then this process.
- `COUNTERFOIL_FAILPOINTS_PIDS`: pid files, separated by the path separator. The first line of each
  holds the pid of a tree's root, so PostgreSQL's `postmaster.pid` can be named as it is.
- `COUNTERFOIL_FAILPOINTS_RECORD`: a file that gets the name of every hit, one a line.
- `install(hook)`: awaited at every hit with its name; for tests in the same process.
"""

import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

Action = Literal["kill", "killall"]
Hook = Callable[[str], Awaitable[None]]


class Trigger(NamedTuple):
    """Run `action` at the hit number `at` (from 1)."""

    action: Action
    at: int


def parse(text: str) -> dict[str, Trigger]:
    """Read the value of `COUNTERFOIL_FAILPOINTS`; raises ValueError that names the bad item."""
    triggers: dict[str, Trigger] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, rest = item.partition("=")
        action, _, at = rest.partition("@")
        if not name or action not in ("kill", "killall") or (at and not at.isdecimal()):
            raise ValueError(f"COUNTERFOIL_FAILPOINTS: cannot read {item!r}; want name=kill@2")
        triggers[name] = Trigger(action, max(int(at or 1), 1))
    return triggers


class _State:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self.triggers = parse(environment.get("COUNTERFOIL_FAILPOINTS", ""))
        pid_files = environment.get("COUNTERFOIL_FAILPOINTS_PIDS", "")
        self.pid_files = [Path(name) for name in pid_files.split(os.pathsep) if name]
        record = environment.get("COUNTERFOIL_FAILPOINTS_RECORD", "")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self.record = os.open(record, flags, 0o600) if record else None
        self.hook: Hook | None = None
        self.counts: Counter[str] = Counter()
        self.active = bool(self.triggers) or self.record is not None


_state = _State(os.environ)


def install(hook: Hook | None) -> None:
    """Await `hook(name)` at every hit in this process, or stop doing so with None.

    What the hook raises is raised at the point that was hit.
    """
    _state.hook = hook
    _state.active = bool(_state.triggers) or _state.record is not None or hook is not None


def reload(environment: Mapping[str, str] | None = None) -> None:
    """Read the environment again: for a process that was forked, not started, with new settings."""
    global _state
    if _state.record is not None:
        os.close(_state.record)
    _state = _State(os.environ if environment is None else environment)


def active() -> bool:
    """Whether a hit does anything in this process."""
    return _state.active


async def hit_all(names: Iterable[str], when: str) -> None:
    """Say that the points `<name>.<when>` were reached."""
    for name in names:
        await hit(f"{name}.{when}")


async def hit(name: str) -> None:
    """Say that the point `name` was reached."""
    state = _state
    if not state.active:
        return
    if state.record is not None:
        # One write with O_APPEND: lines of several processes never mix.
        os.write(state.record, f"{name}\n".encode())
    trigger = state.triggers.get(name)
    if trigger is not None:
        state.counts[name] += 1
        if state.counts[name] == trigger.at:
            _die(trigger.action, state.pid_files)
    if state.hook is not None:
        await state.hook(name)


def _die(action: Action, pid_files: list[Path]) -> None:
    if action == "killall":
        for root in _pids(pid_files):
            _kill_tree(root)
    os.kill(os.getpid(), signal.SIGKILL)


def _pids(pid_files: list[Path]) -> list[int]:
    found: list[int] = []
    for path in pid_files:
        try:
            found.append(int(path.read_text().split("\n", 1)[0]))
        except (OSError, ValueError):
            continue  # a process that is not running has nothing to kill
    return found


def _kill_tree(root: int) -> None:
    """SIGKILL a process and its descendants, the root first so that it starts no new ones."""
    tree = [root, *_descendants(root)]
    for pid in tree:
        if pid != os.getpid():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                # The name in parentheses may hold spaces; the second field after it is the parent.
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    pending = list(children.get(root, ()))
    while pending:
        pid = pending.pop()
        found.append(pid)
        pending.extend(children.get(pid, ()))
    return found
