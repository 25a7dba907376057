"""Settings: each declared once, read from RocketMQ's properties files, and traceable to its source.

A component declares a frozen dataclass whose fields are `option(...)`; everything else follows from it:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class GreeterConfig:
        listen_port: int = option("listenPort", 9876, "Change it if another server uses this port.", min=0, max=65535)

    settings = Settings.load(GreeterConfig, file=Path("greeter.conf"), environ=os.environ, sets=["listenPort=0"])
    settings[GreeterConfig].listen_port     # 0, an int for mypy too
    settings.origin("listenPort")           # "--set"

`properties` knows the file format, `options` what a setting is, `loading` how sources combine, `files` how to replace a
file without ever leaving it half written.
"""

from __future__ import annotations

from .files import replace_file
from .loading import Assignment, Settings, Update, environment_name, read_file
from .options import GiB, KiB, MiB, Option, computed, option, options_of
from .properties import Property, dump, parse

__all__ = [
    "Assignment",
    "GiB",
    "KiB",
    "MiB",
    "Option",
    "Property",
    "Settings",
    "Update",
    "computed",
    "dump",
    "environment_name",
    "option",
    "options_of",
    "parse",
    "read_file",
    "replace_file",
]
