"""The demo's final report: a few lines and bars in the terminal, and the same as a page."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rich.console import Console


@dataclass(frozen=True, slots=True)
class Product:
    """A row of the table that the pipeline made."""

    name: str
    orders: int
    pieces: int
    revenue: float


@dataclass(frozen=True, slots=True)
class Channel:
    """Orders by where they came from: all of them, and those that are archived."""

    name: str
    archived: int
    orders: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What is worth knowing about a run."""

    products: Sequence[Product]  # the best first
    facts: Sequence[tuple[str, str]]  # what, and how much
    channels: Sequence[Channel] = ()

    @property
    def best(self) -> float:
        return max((product.revenue for product in self.products), default=1.0)


def print_report(figures: Figures, console: Console) -> None:
    chart = Table(title="revenue", title_justify="left", box=None, show_header=False)
    for product in figures.products:
        bar = "█" * round(40 * product.revenue / figures.best)
        chart.add_row(product.name, f"{product.revenue:,.2f}", f"[green]{bar}[/green]", f"{product.orders:,} orders")
    console.print(chart)
    facts = Table(box=None, show_header=False)
    for what, how_much in figures.facts:
        facts.add_row(f"[dim]{what}[/dim]", how_much)
    console.print(facts)


def write_page(figures: Figures, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(figures), encoding="utf-8")


def page(figures: Figures) -> str:
    """The report as a self-contained page."""
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>PyroMQ demo</title>
<style>
  :root {{ color-scheme: light dark; --bar: #d9480f; --dim: #868e96 }}
  body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 3rem auto; padding: 0 1rem }}
  h1 {{ font-size: 1.5rem }}
  h2 {{ font-size: 1.1rem; margin-top: 2rem }}
  table {{ border-collapse: collapse; width: 100% }}
  td {{ padding: .25rem .75rem .25rem 0; vertical-align: middle }}
  td.number {{ text-align: right; font-variant-numeric: tabular-nums }}
  td.bar {{ width: 55% }}
  td.parts {{ width: 55% }}
  td.parts div {{ display: flex; height: 1.1rem }}
  td.parts div :first-child {{ background: var(--dim) }}
  td.parts div :last-child {{ background: var(--bar); min-width: 2px }}
  td.bar div {{ background: var(--bar); height: 1.1rem; border-radius: 2px }}
  .dim {{ color: var(--dim) }}
  td.what {{ white-space: nowrap }}
</style>
<h1>A shop on PyroMQ and Spark</h1>
<h2>Revenue by product</h2>
<table>{"".join(_product_rows(figures))}</table>
<h2>Orders by channel, history and live</h2>
<table>{"".join(_channel_rows(figures))}</table>
<h2>The run</h2>
<table>{"".join(_fact_rows(figures))}</table>
</html>
"""


def _product_rows(figures: Figures) -> Iterator[str]:
    for product in figures.products:
        width = 100 * product.revenue / figures.best
        yield (
            f'\n<tr><td>{html.escape(product.name)}</td><td class="bar"><div style="width: {width:.1f}%"></div></td>'
            f'<td class="number">{product.revenue:,.2f}</td>'
            f'<td class="number dim">{product.orders:,} orders</td></tr>'
        )


def _channel_rows(figures: Figures) -> Iterator[str]:
    most = max((channel.orders for channel in figures.channels), default=1)
    for channel in figures.channels:
        live = channel.orders - channel.archived
        parts = "".join(f'<span style="width: {100 * part / most:.1f}%"></span>' for part in (channel.archived, live))
        yield (
            f'\n<tr><td>{html.escape(channel.name)}</td><td class="parts"><div>{parts}</div></td>'
            f'<td class="number">{channel.archived:,} in the lake</td><td class="number">{live:,} live</td></tr>'
        )


def _fact_rows(figures: Figures) -> Iterator[str]:
    for what, how_much in figures.facts:
        yield f'\n<tr><td class="what dim">{html.escape(what)}</td><td>{html.escape(how_much)}</td></tr>'
