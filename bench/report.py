"""A run's results as a page with plots."""

from pathlib import Path

from bench import plots
from bench.bars import BY_ID, FIGURES, FLOORS, Figure, floor_of
from bench.plan import Sample
from bench.results import Results
from bench.stats import short

_HEAD = """# Benchmark report

Written by `make bench`; nothing here is edited by hand. The server under test is `counterfoil run`
as users start it: real PostgreSQL in a fresh data folder, the offline model in a process of its
own, everything on the same cores as the load client. Floors are measured in the same run: absolute
figures depend on the machine and drift, ratios to the floor are what can be compared.
"""

_LEGEND = """
*met* compares with the bar; **bold** figures must never miss theirs. *floor* is what the parts
alone would give; *ratio* says how many times worse than that we are (1.0 is the floor itself).
"""


def write(results: Results, folder: Path) -> None:
    """Writes `report.md`, `results.json` and `plots/` into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    results.save(folder / "results.json")
    names = plots.write(results, folder / "plots")
    (folder / "report.md").write_text(page(results, names))


def page(results: Results, plot_names: list[str]) -> str:
    """The report."""
    parts = [_HEAD, "## Figures\n", table(results), _LEGEND]
    parts += [f"![{name.removesuffix('.svg')}](plots/{name})\n" for name in plot_names]
    parts += ["## Notes\n", _notes(results), "## Floors\n", _floors(results)]
    parts += ["## Machine\n", _machine(results)]
    return "\n".join(parts).rstrip() + "\n"


def table(results: Results) -> str:
    """The table of figures, as Markdown."""
    samples = {sample.figure: sample for sample in results.samples}
    lines = [
        "| figure | measured | bar | aim | met | floor | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        _line(figure, samples.get(figure.id), results)
        for figure in FIGURES
        if figure.row in results.rows
    ]
    return "\n".join(lines)


def _line(figure: Figure, sample: Sample | None, results: Results) -> str:
    name = f"**{figure.what}**" if figure.decisive else figure.what
    bar, aim = _limit(figure, figure.bar), _limit(figure, figure.aim)
    if sample is None:
        why = "failed" if figure.row in results.failed else "not measured"
        return f"| {name} | {why} | {bar} | {aim} | - | - | - |"
    met = figure.met(sample.value)
    words = "-" if met is None else "yes" if met else "**no**"
    floor = floor_of(figure.id, results.floors)
    floor_text = "-" if floor is None else f"{short(floor)} {figure.unit}"
    ratio = "-" if not floor or not sample.value else short(figure.ratio(sample.value, floor))
    value = f"{short(sample.value)} {figure.unit}".strip()
    return f"| {name} | {value} | {bar} | {aim} | {words} | {floor_text} | {ratio} |"


def _limit(figure: Figure, limit: float | None) -> str:
    if limit is None:
        return "-"
    return f"{'≤' if figure.better == 'lower' else '≥'} {limit:,g} {figure.unit}".strip()


def _notes(results: Results) -> str:
    lines: list[str] = []
    for sample in results.samples:
        figure = BY_ID[sample.figure]
        text = f"- {figure.what}: n = {sample.n:,}"
        if sample.note:
            text += f". {sample.note}"
        if figure.floor_is:
            text += f". Floor: {figure.floor_is}"
        lines.append(text + ".")
    lines += [f"- {row}: not measured: {why}." for row, why in results.missing.items()]
    lines += [f"- {row}: failed: {why}." for row, why in results.failed.items()]
    lines.append(f"- The run took {results.seconds / 60:.1f} minutes at scale {results.scale:g}.")
    return "\n".join(lines) + "\n"


def _floors(results: Results) -> str:
    lines = ["| floor | measured |", "|---|---|"]
    lines += [
        f"| {text} | {short(results.floors[name])} {unit} |"
        for name, (text, unit) in FLOORS.items()
        if name in results.floors
    ]
    return "\n".join(lines) + "\n"


def _machine(results: Results) -> str:
    lines = ["| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in results.machine.items()]
    lines += [f"| PostgreSQL {name} | {value} |" for name, value in results.postgres.items()]
    return "\n".join(lines) + "\n"
