"""Plots as SVG, written by hand: two kinds of plot need no library."""

from pathlib import Path

from bench.bars import FIGURES
from bench.plan import Sample
from bench.results import Results
from bench.stats import percentile, short

_WIDTH = 760
_LEFT = 400
_LINE = 24
_STYLE = "font-family:sans-serif;font-size:12px;fill:#333"


def write(results: Results, folder: Path) -> list[str]:
    """Writes the plots for which there are figures; their file names."""
    folder.mkdir(parents=True, exist_ok=True)
    samples = {sample.figure: sample for sample in results.samples}
    drawn = {"bars.svg": _against_bars(samples)}
    for name, figure in (("gate.svg", "gate_p50"), ("text.svg", "text_p50")):
        if figure in samples and len(samples[figure].series) > 1:
            drawn[name] = _distribution(figure, samples[figure].series)
    for name, svg in drawn.items():
        (folder / name).write_text(svg)
    return list(drawn)


def _against_bars(samples: dict[str, Sample]) -> str:
    """How much of its bar each figure needs: left of the line is met."""
    rows: list[str] = []
    scale = (_WIDTH - _LEFT - 70) / 2
    for figure in FIGURES:
        sample = samples.get(figure.id)
        if sample is None or not figure.bar or not sample.value:
            continue
        used = figure.ratio(sample.value, figure.bar)
        colour = "#2a7" if figure.met(sample.value) else "#c43"
        y = 30 + len(rows) * _LINE
        width = min(used, 2) * scale
        rows.append(
            f'<text x="{_LEFT - 8}" y="{y + 15}" text-anchor="end">{_safe(figure.what)}</text>'
            f'<rect x="{_LEFT}" y="{y + 3}" width="{width:.1f}" height="16" fill="{colour}"/>'
            f'<text x="{_LEFT + width + 6:.1f}" y="{y + 15}">'
            f"{short(sample.value)} {figure.unit}</text>"
        )
    height = 44 + len(rows) * _LINE
    line = (
        f'<line x1="{_LEFT + scale}" x2="{_LEFT + scale}" y1="24" y2="{height - 10}"'
        ' stroke="#333" stroke-dasharray="4 3"/>'
        f'<text x="{_LEFT + scale}" y="16" text-anchor="middle">bar (shorter is better)</text>'
    )
    return _svg(height, "".join(rows) + line)


def _distribution(figure: str, series: list[float]) -> str:
    """A histogram up to the 99.5th percentile, with p50 and p99 marked."""
    top = percentile(series, 99.5) or 1.0
    bins = [0] * 60
    for value in series:
        bins[min(int(value / top * 60), 59)] += 1
    most = max(bins)
    step = (_WIDTH - 80) / 60
    shapes = [
        f'<rect x="{40 + index * step:.1f}" y="{200 - 160 * count / most:.1f}"'
        f' width="{step - 1:.1f}" height="{160 * count / most:.1f}" fill="#58a"/>'
        for index, count in enumerate(bins)
    ]
    for percent in (50, 99):
        value = percentile(series, percent)
        x = 40 + min(value / top, 1) * (_WIDTH - 80)
        shapes.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="30" y2="200" stroke="#333"/>'
            f'<text x="{x:.1f}" y="24" text-anchor="middle">p{percent} {short(value)} ms</text>'
        )
    title = next(one.what for one in FIGURES if one.id == figure).partition(", p")[0]
    shapes.append(
        f'<text x="40" y="218">0</text>'
        f'<text x="{_WIDTH - 40}" y="218" text-anchor="end">{short(top)} ms</text>'
        f'<text x="{_WIDTH / 2}" y="218" text-anchor="middle">{_safe(title)}</text>'
    )
    return _svg(230, "".join(shapes))


def _svg(height: float, content: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height:.0f}"'
        f' viewBox="0 0 {_WIDTH} {height:.0f}" style="{_STYLE}">'
        f'<rect width="100%" height="100%" fill="#fff"/>{content}</svg>\n'
    )


def _safe(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
