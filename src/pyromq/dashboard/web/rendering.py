"""Templates. Everything in them is escaped unless it was made by us."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from . import static_files
from .formats import FILTERS
from .icons import ICONS
from .languages import gettext, ngettext

FOLDER = Path(__file__).parent.parent / "templates"


def _icon(name: str) -> Markup:
    """An icon that says nothing to those who do not see it: the words beside it do."""
    return Markup('<svg class="icon" viewBox="0 0 24 24" aria-hidden="true">{}</svg>').format(Markup(ICONS[name]))


def environment() -> jinja2.Environment:
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
    )
    env.install_gettext_callables(gettext, ngettext, newstyle=True)  # type: ignore[attr-defined]  # of the extension
    env.filters.update(FILTERS)
    env.globals.update(icon=_icon, version=static_files.version)
    return env


_ENVIRONMENT = environment()


def render(template: str, values: dict[str, Any]) -> str:
    return _ENVIRONMENT.get_template(template).render(values)
