"""`pyromq completion`: a shell script that asks `pyromq complete` for suggestions."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from ..failures import Exit

_BASH = """\
# eval "$(pyromq completion bash)", or save as ~/.local/share/bash-completion/completions/pyromq
_pyromq() {
    local IFS=$'\\n'
    COMPREPLY=($(pyromq complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _pyromq pyromq
"""

_ZSH = """\
#compdef pyromq
# eval "$(pyromq completion zsh)", or save as _pyromq in a folder of $fpath
_pyromq() {
    local -a found
    found=("${(@f)$(pyromq complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "$found" ]]; then compadd -a found; else _files; fi
}
compdef _pyromq pyromq
"""

_FISH = """\
# pyromq completion fish | source, or save as ~/.config/fish/completions/pyromq.fish
complete -c pyromq -a '(pyromq complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
"""


class Shell(StrEnum):
    bash = "bash"
    zsh = "zsh"
    fish = "fish"


SCRIPTS = {Shell.bash: _BASH, Shell.zsh: _ZSH, Shell.fish: _FISH}

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def main(arguments: list[str]) -> int:
    try:
        app(arguments, prog_name="pyromq completion")
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else Exit.OK
    return Exit.OK


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def completion(shell: Annotated[Shell, typer.Argument(help="Your shell.", show_default=False)]) -> None:
    """Print a script that completes commands, topics and groups.

    For bash, add `eval "$(pyromq completion bash)"` to ~/.bashrc.

    Example: pyromq completion fish > ~/.config/fish/completions/pyromq.fish
    """
    print(SCRIPTS[shell], end="")
