"""`python -m bench`: measures, writes `bench/results.json`, `bench/report.md`, `bench/plots/`."""

import argparse
import importlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from bench import machine, report
from bench.bars import BY_ID, ROWS
from bench.plan import NotMeasured, Plan, Sample
from bench.results import Results
from bench.stats import short

HERE = Path(__file__).resolve().parent

_MEASURED_BY = {
    "gate": "sessions:gate",
    "text": "sessions:text",
    "append": "ledger:append",
    "fanout": "streams:fanout",
    "streams": "streams:memory",
    "reconnect": "streams:reconnect",
    "request": "context:request",
    "reducing": "reducing:reducing",
    "long": "context:long",
    "recovery": "recovery:recovery",
    "split": "split:split",
    "provider": "provider:provider",
    "peer": "peer:peer",
}
"""Row to `module:function` in `bench.rows`."""


class _Options(argparse.Namespace):
    rows: str
    scale: float
    out: Path
    no_floors: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 1 when a row failed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rows", default="", help=f"some of {','.join(ROWS)}; default all")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the run; 1.0 reports")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of what is written")
    parser.add_argument("--no-floors", action="store_true", help="measure the rows only")
    options = parser.parse_args(arguments, namespace=_Options())
    rows = tuple(row for row in options.rows.replace(",", " ").split()) or ROWS
    unknown = [row for row in rows if row not in ROWS]
    if unknown:
        parser.error(f"no row {', '.join(unknown)}; there are {', '.join(ROWS)}")
    plan = Plan(options.scale)
    results = Results(machine=machine.describe(), rows=list(rows), scale=options.scale)
    began = time.monotonic()
    # Floors are measured in the same run, so that what drifts drifts on both sides.
    if not options.no_floors:
        _floors(plan, results)
    for number, row in enumerate(rows, 1):
        plan.say(f"[{number}/{len(rows)}] {row}")
        _row(plan, results, row)
    results.seconds = time.monotonic() - began
    # A selection is for the eyes of whoever asked; the report in the repository is a whole run.
    if rows == ROWS or options.out != HERE:
        report.write(results, options.out)
        plan.say(f"wrote {options.out / 'report.md'}")
    sys.stdout.write(report.table(results) + "\n")
    return 1 if results.failed else 0


def _floors(plan: Plan, results: Results) -> None:
    from bench import floors

    results.floors, results.postgres = uvloop.run(floors.measure(plan))


def _row(plan: Plan, results: Results, row: str) -> None:
    module, _, function = _MEASURED_BY[row].partition(":")
    try:
        work = getattr(importlib.import_module(f"bench.rows.{module}"), function)
        samples: list[Sample] = uvloop.run(work(plan))
    except NotMeasured as reason:
        results.missing[row] = str(reason)
        plan.say(f"not measured: {reason}")
        return
    except Exception as error:
        results.failed[row] = f"{type(error).__name__}: {error}"
        plan.say(f"failed: {results.failed[row]}")
        return
    for sample in samples:
        if sample.figure in BY_ID:
            plan.say(f"{sample.figure} {short(sample.value)} {BY_ID[sample.figure].unit}")
            results.samples.append(sample)
        else:
            results.floors[sample.figure] = sample.value


if __name__ == "__main__":
    sys.exit(main())
