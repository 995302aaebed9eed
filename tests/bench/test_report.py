"""The bars are the design's, and a report renders from what a run found."""

from pathlib import Path

import msgspec
import pytest

from bench import __main__ as command
from bench import report
from bench.bars import BY_ID, FIGURES, ROWS, floor_of
from bench.plan import Sample
from bench.results import Results

BARS = {
    "gate_p50": (25, 16),
    "gate_rate": (100, 150),
    "text_p50": (12, 8),
    "text_p99": (30, 20),
    "append_many": (8_000, 25_000),
    "append_hot": (2_000, 10_000),
    "fanout_p50": (5, 2),
    "fanout_p99": (25, 10),
    "stream_memory": (60, 25),
    "reconnect": (300, 120),
    "request_warm": (5, 2),
    "request_cold": (40, 15),
    "long_session": (2, 1.2),
    "recovery": (5, 2),
    "recovery_lost": (0, 0),
    "recovery_doubled": (0, 0),
    "split_rate": (40, 100),
    "reduce_warm": (2, 1.2),
    "reduce_cold": (5, 2),
    "compaction": (2, 1),
}


def test_the_bars_are_those_of_the_design() -> None:
    found = {one.id: (one.bar, one.aim) for one in FIGURES if one.bar is not None}
    assert found == BARS


def test_a_missed_bar_is_said_and_a_row_that_could_not_be_had_has_no_figure(
    tmp_path: Path,
) -> None:
    results = Results(machine={"cores": "2"}, rows=list(ROWS), scale=1.0)
    results.floors = {"insert": 0.2, "asgi": 0.1}
    results.samples = [Sample("gate_p50", 26.0, n=300), Sample("text_p50", 6.0, n=300)]
    results.missing["peer"] = "no network"
    report.write(results, tmp_path)
    assert Results.load(tmp_path / "results.json") == results
    page = (tmp_path / "report.md").read_text()
    assert "| 26.0 ms | ≤ 25 ms | ≤ 16 ms | **no** | 2.60 ms | 10.0 |" in page
    assert "| 6.00 ms | ≤ 12 ms | ≤ 8 ms | yes | 1.20 ms | 5.00 |" in page
    assert "peer: not measured: no network." in page
    assert (tmp_path / "plots" / "bars.svg").exists()


def test_a_missing_floor_leaves_no_ratio() -> None:
    assert floor_of("gate_rate", {"commits": 1.0}) is None
    assert floor_of("recovery_lost", {}) is None


def test_rows_are_selected_by_name() -> None:
    with pytest.raises(SystemExit):
        command.main(["--rows", "unheard-of"])


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("row", [row for row in ROWS if row != "peer"])
def test_every_row_measures_its_figures(row: str, tmp_path: Path) -> None:
    arguments = ["--rows", row, "--scale", "0.01", "--no-floors", "--out", str(tmp_path)]
    assert command.main(arguments) == 0
    results = msgspec.json.decode((tmp_path / "results.json").read_bytes(), type=Results)
    assert {one.figure for one in results.samples} == {
        one.id for one in BY_ID.values() if one.row == row
    }
