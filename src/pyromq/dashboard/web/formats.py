"""Numbers, sizes and times as pages show them."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from urllib.parse import quote

from markupsafe import Markup, escape

from .languages import gettext as _

NOTHING = Markup('<span class="none">–</span>')
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def number(value: float | None) -> str | Markup:
    """12,345; a dash for what is not known, never a 0."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}"


def short_number(value: float | None) -> str | Markup:
    """1,234 · 12.3k · 4.56M, for places with little room."""
    if value is None:
        return NOTHING
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            scaled = value / (limit if unit != "k" else 1e3)
            return f"{scaled:.3g}{unit}"
    return f"{value:,.0f}"


def rate(value: float | None) -> str | Markup:
    """Messages a second."""
    if value is None:
        return NOTHING
    if value == 0:
        return "0"
    if value < 10:
        return f"{value:.2f}" if value < 1 else f"{value:.1f}"
    return str(short_number(value))


def size(value: float | None) -> str | Markup:
    if value is None:
        return NOTHING
    step = 0 if value < 1 else min(int(math.log(value, 1024)), len(_SIZES) - 1)
    return f"{value:.0f} B" if step == 0 else f"{value / 1024**step:.3g} {_SIZES[step]}"


def percent(value: float | None) -> str | Markup:
    return NOTHING if value is None else f"{value * 100:.0f} %"


def span(seconds: float | None) -> str | Markup:
    """1.2 s · 3 min · 2.5 h · 4 d."""
    if seconds is None:
        return NOTHING
    for limit, unit in ((86400 * 2, "d"), (5400, "h"), (90, "min")):
        if seconds >= limit:
            scaled = seconds / {"d": 86400, "h": 3600, "min": 60}[unit]
            return f"{scaled:.1f}".removesuffix(".0") + f" {unit}" if scaled < 10 else f"{scaled:.0f} {unit}"
    if seconds == 0:
        return "0 s"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def moment(when: datetime | float | None) -> Markup:
    """How long ago, with the exact time on hover; the browser keeps it right, in the reader's time zone."""
    if when is None or when == 0:
        return NOTHING
    if not isinstance(when, datetime):
        when = datetime.fromtimestamp(when, UTC)
    exact = when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(exact, exact, ago(when))


def ago(when: datetime) -> str:
    seconds = time.time() - when.timestamp()
    ahead, seconds = seconds < 0, abs(seconds)
    if seconds < 5:
        return _("just now")
    words = str(span(float(int(seconds))))
    return _("in %(span)s") % {"span": words} if ahead else _("%(span)s ago") % {"span": words}


def arrow(growth: float | None) -> Markup:
    """Where a lag is going."""
    if growth is None or abs(growth) < 0.05:
        return Markup('<span class="trend" title="{}">→</span>').format(_("steady"))
    if growth > 0:
        return Markup('<span class="trend up" title="{}">↗</span>').format(
            _("growing by %(rate)s/s") % {"rate": rate(growth)}
        )
    return Markup('<span class="trend down" title="{}">↘</span>').format(
        _("shrinking by %(rate)s/s") % {"rate": rate(-growth)}
    )


def dash(value: object) -> str | Markup:
    return NOTHING if value is None or value == "" else escape(str(value))


def short_id(text: str) -> str:
    """Ids of one producer differ at their end; the whole one is in the title."""
    return text if len(text) <= 20 else f"{text[:4]}…{text[-12:]}"


def seg(text: str) -> str:
    """A name as one segment of a path."""
    return quote(str(text), safe="")


FILTERS = {
    "seg": seg,
    "short_id": short_id,
    "number": number,
    "short": short_number,
    "rate": rate,
    "size": size,
    "percent": percent,
    "span": span,
    "moment": moment,
    "arrow": arrow,
    "dash": dash,
}
