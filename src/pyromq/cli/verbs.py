"""Turn a coroutine function into a verb of `pyromq <noun>`, with the options all verbs share.

`pyromq/cli/__init__.py` explains how to write a noun.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from .execution import carry_out
from .main import common_last
from .output import Output
from .session import Asked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

TIMEOUT = 3.0

_HELP = {"help_option_names": ["-h", "--help"]}

Verb = TypeVar("Verb", bound="Callable[..., Any]")

Namesrv = Annotated[
    str | None, typer.Option("-n", "--namesrv", metavar="HOST:PORT", help="Name servers, separated by ';'.")
]
ContextName = Annotated[str | None, typer.Option("--context", metavar="NAME", help="A saved connection.")]
AccessKey = Annotated[
    str | None,
    typer.Option("--access-key", metavar="KEY", help="Sign as this account; the secret: PYROMQ_SECRET_KEY, or asked."),
]
Tls = Annotated[bool, typer.Option("--tls", help="Encrypt; PYROMQ_TLS_CLIENT_* name certificates.")]
OutputForm = Annotated[Output, typer.Option("-o", "--output", help="Output format.")]
Timeout = Annotated[
    float | None, typer.Option("--timeout", metavar="SEC", min=0.1, help="Time limit for the whole command.")
]
NoColor = Annotated[bool, typer.Option("--no-color", help="Plain text; also with NO_COLOR set.")]
Watch = Annotated[float | None, typer.Option("--watch", metavar="SEC", min=0.1, help="Repeat until Ctrl-C.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")]


def new_app(sentence: str, *, alone: bool = False) -> typer.Typer:
    """The typer app of a noun, or of a word between noun and verb (`app.add_typer(offsets, name="offsets")`).

    With `alone` the noun is itself the verb, as in `pyromq doctor`.
    """
    app = typer.Typer(
        help=sentence,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        context_settings=_HELP,
    )
    if not alone:
        # Without it typer would drop the name of an app's only verb.
        app.callback()(_nothing)
    return app


def run_app(app: typer.Typer, noun: str, arguments: list[str]) -> int:
    """Run a noun; returns the exit code."""
    words = common_last(arguments)
    if words and words[0] == "help":
        words = ["--help"]
    try:
        narrowed(app, words)(words, prog_name=f"pyromq {noun}")
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(bool(done.code))
    return 0


def narrowed(app: typer.Typer, words: Sequence[str]) -> typer.Typer:
    """The app reduced to the verb that was called; the whole app for help and unknown words.

    Typer builds a validator for each parameter of each verb; for twelve verbs that takes longer than running one.
    """
    first = words[0] if words else ""
    slim = copy.copy(app)
    slim.registered_commands = [each for each in app.registered_commands if each.name == first]
    slim.registered_groups = []
    for each in app.registered_groups:
        if each.name == first and each.typer_instance is not None:
            group = copy.copy(each)
            group.typer_instance = narrowed(each.typer_instance, words[1:])
            slim.registered_groups.append(group)
    return slim if slim.registered_commands or slim.registered_groups else app


def _nothing() -> None:
    pass


# Verbs


def reading(
    app: typer.Typer, name: str, *, timeout: float | None = TIMEOUT, connects: bool = True
) -> Callable[[Verb], Verb]:
    """A read-only verb, with --watch. `timeout` None lets it run until stopped."""
    return _verb(app, name, {"watch": (Watch, None)}, timeout, connects=connects)


def changing(
    app: typer.Typer, name: str, *, timeout: float | None = TIMEOUT, connects: bool = True
) -> Callable[[Verb], Verb]:
    """A verb that changes something: it has --yes and --dry-run, and asks `session.agreed` first."""
    return _verb(app, name, {"yes": (Yes, False), "dry_run": (DryRun, False)}, timeout, connects=connects)


def _verb(
    app: typer.Typer, name: str, further: Mapping[str, tuple[Any, Any]], timeout: float | None, *, connects: bool
) -> Callable[[Verb], Verb]:
    common: dict[str, tuple[Any, Any]] = {
        "output": (OutputForm, Output.table),
        **further,
        "namesrv": (Namesrv, None),
        "context": (ContextName, None),
        "sign_as": (AccessKey, None),
        "tls": (Tls, False),
        "timeout": (Timeout, None),
        "no_color": (NoColor, False),
    }
    if not connects:
        for unused in ("namesrv", "context", "sign_as", "tls", "timeout", "watch"):
            common.pop(unused, None)

    def register(function: Verb) -> Verb:
        _, *own = inspect.signature(function, eval_str=True).parameters.values()
        groups: dict[str, Any] = {
            each.name: each.annotation for each in own if dataclasses.is_dataclass(each.annotation)
        }

        @functools.wraps(function)
        def command(ctx: typer.Context, **given: Any) -> None:
            options = {option: given.pop(option) for option in common}
            for name, group in groups.items():
                given[name] = group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
            asked = Asked(ctx.command_path, **options)
            raise typer.Exit(carry_out(function, given, asked, timeout, connects=connects))

        _declare(command, [parameter for each in own for parameter in _options(each)], common)
        app.command(name, context_settings=_HELP)(command)
        return function

    return register


def _options(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """A verb's parameter as options: itself, or each field if it is a dataclass."""
    if not dataclasses.is_dataclass(parameter.annotation):
        return [parameter]
    hints = get_type_hints(parameter.annotation, include_extras=True)
    return [
        inspect.Parameter(each.name, parameter.kind, default=each.default, annotation=hints[each.name])
        for each in dataclasses.fields(parameter.annotation)
    ]


def _declare(
    command: Callable[..., None], own: Sequence[inspect.Parameter], common: Mapping[str, tuple[Any, Any]]
) -> None:
    """Tell typer the parameters: the verb's own without the session, then the common ones."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter("ctx", keyword, annotation=typer.Context),
        *(each.replace(kind=keyword) for each in own),
        *(
            inspect.Parameter(option, keyword, default=default, annotation=kind)
            for option, (kind, default) in common.items()
        ),
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer looks there
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    del command.__wrapped__  # type: ignore[attr-defined]  # or the annotations would be looked for behind it
