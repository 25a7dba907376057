"""Make docs/images/terminal.svg: a real session of `pyromq up` and a few commands, as a terminal shows it.

The commands are run, on free ports and in an empty folder, and what they print is drawn; only the ports are written as
the usual ones. Run it again when the output of one of them changes.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "terminal.svg"
WIDTH = 114

UP = "pyromq up"
COMMANDS = (
    "pyromq topic create orders -q 1",
    """pyromq message send orders '{"total": 60}' --tag created --key order-1""",
    """pyromq message send orders '{"total": 120}' --tag paid --key order-2""",
    "pyromq message tail orders --last 2 --count 2",
    "pyromq topic list",
)
# rich links a font of somebody else's server; a picture in a README has no network, and the reader has a font.
_FONT_FACES = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def main() -> int:
    ports = {"9876": _free_port(), "10911": _free_port()}
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "NAMESRV_ADDR": f"127.0.0.1:{ports['9876']}",
        "TERM": "xterm-256color",
        "COLUMNS": str(WIDTH),
    }
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["--namesrv-port", str(ports["9876"]), "--broker-port", str(ports["10911"])]
        terminal, process = _start([*UP.split(), *arguments], Path(folder), environ)
        try:
            said = _read(terminal, until=b"Ctrl-C stops it.").rstrip()
            shown = [_prompt(UP), said, "\n\n\x1b[2m# in another terminal\x1b[0m"]
            for command in COMMANDS:
                shown += ["\n", _prompt(command), _run(command, Path(folder), environ)]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
    text = "".join(shown)
    for usual, used in ports.items():
        text = text.replace(f":{used}", f":{usual}")
    # Nothing is printed while it is drawn.
    with Path(os.devnull).open("w") as nothing:
        console = Console(record=True, width=WIDTH, file=nothing, force_terminal=True, color_system="truecolor")
        console.print(Text.from_ansi(text.rstrip()))
        svg = console.export_svg(title="pyromq", theme=MONOKAI)
    svg = _FONT_FACES.sub("", svg).replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")
    PICTURE.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n")
    print(PICTURE.relative_to(ROOT))
    return 0


def _prompt(command: str) -> str:
    return f"\x1b[1;32m$\x1b[0m \x1b[1m{command}\x1b[0m\n"


def _run(command: str, folder: Path, environ: Mapping[str, str]) -> str:
    terminal, process = _start(["bash", "-c", command], folder, environ)
    said = _read(terminal)
    if process.wait() != 0:
        raise SystemExit(f"{command}: {said}")
    return said


def _start(command: list[str], folder: Path, environ: Mapping[str, str]) -> tuple[int, subprocess.Popen[bytes]]:
    """Run it in a terminal of its own, or it would print without colours."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, WIDTH, 0, 0))
    process = subprocess.Popen(command, cwd=folder, env=environ, stdin=its, stdout=its, stderr=its)
    os.close(its)
    return ours, process


def _read(terminal: int, until: bytes | None = None) -> str:
    said = b""
    while until is None or until not in said:
        try:
            some = os.read(terminal, 65536)
        except OSError:  # the other side was closed
            break
        if not some:
            break
        said += some
    return said.decode().replace("\r\n", "\n")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
