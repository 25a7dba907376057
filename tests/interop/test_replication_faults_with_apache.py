"""What a slave of ours finds out about a master of Apache's, which does not say who it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.interop import wire
from tests.interop.apache import CLUSTER, Broker
from tests.interop.peers import NameServer
from tests.interop.process import wait_until
from tests.interop.pyromq_up import PyroMQ

from pyromq.protocol import fastjson

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.interop

PAIR = "pair"
SHOWN_WITHIN = 60.0


@pytest.mark.parametrize(("version", "code"), [("4.9.7", 3), ("5.5.0", 0)])
def test_a_slave_with_another_file_size_says_so(java_packages: None, tmp_path: Path, version: str, code: int) -> None:
    (tmp_path / "theirs").mkdir()
    with NameServer("ours", tmp_path / "namesrv") as namesrv:
        theirs: dict[str, Any] = {"brokerRole": "ASYNC_MASTER", "mappedFileSizeCommitLog": 1 << 20}
        master = Broker(version, tmp_path / "theirs", namesrv.address, name=PAIR, brokerIP2="127.0.0.1", **theirs)
        with master.process:
            master.wait_until_booted()
            with wire.Connection(master.address) as connection:
                answer = connection.ask(906, instance="i", clusterName=CLUSTER, brokerName=PAIR, brokerId=1)
                assert answer.code == code
            own: dict[str, Any] = {"brokerClusterName": CLUSTER, "brokerName": PAIR, "brokerIP2": "127.0.0.1"}
            own |= {"brokerRole": "SLAVE", "brokerId": 1, "mappedFileSizeCommitLog": 2 << 20}
            with PyroMQ(tmp_path / "ours", namesrv=namesrv.address, **own) as slave:

                def says_so() -> bool:
                    with wire.Connection(slave.address) as connection:
                        info: Any = fastjson.loads(connection.ask(28).body)
                    words = "the slave keeps its log in files of 2097152 bytes, the master in files of 1048576"
                    return words in info["table"].get("haProblem", "")

                wait_until(says_so, SHOWN_WITHIN, "the slave says what is wrong")
