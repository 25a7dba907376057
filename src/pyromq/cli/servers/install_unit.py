"""`pyromq install-unit`: print a systemd unit for a server, for you to review and install."""

from __future__ import annotations

import shlex
import shutil
import sys
from enum import StrEnum
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from . import serving

app = serving.new_app()


class Server(StrEnum):
    broker = "broker"
    namesrv = "namesrv"
    controller = "controller"


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code."""
    return serving.run_app(app, "install-unit", arguments)


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def install_unit(
    server: Annotated[Server, typer.Argument(metavar="SERVER", help="broker, namesrv or controller.")] = Server.broker,
    config_file: Annotated[
        Path | None, typer.Option("-c", "--configFile", help="Properties file to start the server with.")
    ] = None,
    user: Annotated[str, typer.Option(help="User to run it as.")] = "pyromq",
) -> None:
    """Print a systemd unit. To install it:

    pyromq install-unit broker -c /etc/pyromq/broker.conf | sudo tee /etc/systemd/system/pyromq-broker.service

    Example: pyromq install-unit broker > /etc/systemd/system/pyromq-broker.service
    """
    print(unit(server, config_file, user), end="")


def unit(server: Server, config_file: Path | None, user: str) -> str:
    """The text of the unit. Data goes to /var/lib/pyromq unless the settings say otherwise."""
    found = shutil.which("pyromq")
    command = [found] if found else [sys.executable, "-m", "pyromq.cli.main"]
    command.append(server.value)
    if config_file is not None:
        command += ["-c", str(config_file.absolute())]
    # Characters that mean something to systemd.
    start = shlex.join(command).replace("%", "%%").replace("$", "$$")
    return _UNIT.format(server="name server" if server is Server.namesrv else server.value, start=start, user=user)


# A broker that recovers a large log takes minutes to be ready; one that drains takes a while to stop.
_UNIT = """\
[Unit]
Description=PyroMQ {server}
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
ExecStart={start}
ExecReload=/bin/kill -HUP $MAINPID
KillSignal=SIGTERM
TimeoutStartSec=infinity
TimeoutStopSec=120
WatchdogSec=60
Restart=on-failure
RestartPreventExitStatus=253 255
LimitNOFILE=655350
User={user}
StateDirectory=pyromq
WorkingDirectory=/var/lib/pyromq
Environment=HOME=/var/lib/pyromq

NoNewPrivileges=yes
ProtectSystem=full
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
PrivateTmp=yes
PrivateDevices=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
LockPersonality=yes

[Install]
WantedBy=multi-user.target
"""
