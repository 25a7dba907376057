"""Who listens on a port, as far as the system tells."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from pyromq.cli.servers.port_holder import holder_of

linux = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="only Linux tells")


@linux
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["IPv4", "IPv6"])
def test_this_process_is_found(family):
    with socket.socket(family) as listener:
        try:
            listener.bind(("", 0))
        except OSError:
            pytest.skip("no such addresses here")
        port = listener.getsockname()[1]
        assert holder_of(port) is None, "nobody listens yet"
        listener.listen()
        name = Path(f"/proc/{os.getpid()}/comm").read_text().strip()
        assert holder_of(port) == f"{name} (pid {os.getpid()})"
    assert holder_of(port) is None


def test_where_nothing_can_be_known_nothing_is_said(tmp_path):
    assert holder_of(9876, tmp_path) is None
    (tmp_path / "net").mkdir()
    # A socket that belongs to a process of somebody else.
    line = "   0: 00000000:2694 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1\n"
    (tmp_path / "net" / "tcp").write_text("  sl  local_address rem_address\n" + line + "short\n")
    (tmp_path / "12").mkdir()
    assert holder_of(9876, tmp_path) is None
    (tmp_path / "12" / "fd").mkdir()
    (tmp_path / "12" / "fd" / "3").symlink_to("socket:[4711]")
    assert holder_of(9876, tmp_path) == "a process (pid 12)"
