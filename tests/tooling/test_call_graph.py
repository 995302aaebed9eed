"""Services call each other along one graph without cycles; every edge of it is decided here."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

SERVICES = Path(__file__).resolve().parents[2] / "services"

EDGES = {
    "journal": {"files"},
    "ledger": {"registry", "tools", "files"},
    "tools": {"registry", "journal", "files"},
    "context": {"transcript", "journal", "files", "ledger"},
    "runner": {"ledger", "transcript", "journal", "context", "tools", "files"},
}
"""Who may call whom; everybody asks the registry who a key belongs to, besides."""


def channels(path: Path) -> Iterator[str]:
    """The services that a module opens a channel to."""
    for node in ast.walk(ast.parse(path.read_text())):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "channel"
        ):
            (name,) = node.args
            assert isinstance(name, ast.Constant), f"{path}: name the service"
            assert isinstance(name.value, str)
            yield name.value


def test_every_call_goes_along_the_graph() -> None:
    found: dict[str, set[str]] = {}
    for path in SERVICES.rglob("*.py"):
        service = path.relative_to(SERVICES).parts[0]
        found.setdefault(service, set()).update(channels(path))
    assert "ledger" in found["context"]
    for service, called in found.items():
        assert called <= EDGES.get(service, set()), service


def test_the_graph_has_no_cycle() -> None:
    """`static_order` raises CycleError; the registry, which everybody asks, calls nobody."""
    everybody = {service: called | {"registry"} for service, called in EDGES.items()}
    assert list(TopologicalSorter(everybody).static_order())[-1] == "runner"
    assert "registry" not in EDGES
