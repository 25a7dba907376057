"""A server without access control pays for none of it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from pyromq.broker.assembly import access_control
from pyromq.broker.config import load_settings
from pyromq.namesrv import NameServer

access_control(load_settings(environ={}))
print(sorted({"yaml", "cryptography"} & set(sys.modules)))
"""


def test_without_access_control_no_yaml_is_imported():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
