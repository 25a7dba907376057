"""`pyromq doctor`, `top` and `apply` at Apache's brokers and name servers of both lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pyromq.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.apache_with_client import Apache

pytestmark = pytest.mark.interop


class Commands:
    def __init__(self, capsys: pytest.CaptureFixture[str], namesrv: str) -> None:
        self._capsys = capsys
        self._namesrv = namesrv

    def rows(self, *words: str, code: int = 0) -> Any:
        with pytest.raises(SystemExit) as done:
            main([*words, "-o", "json", "-n", self._namesrv, "--timeout", "20"])
        out, err = self._capsys.readouterr()
        assert int(done.value.code or 0) == code, out + err
        return json.loads(out) if out else None


@pytest.fixture
def pyromq(capsys: pytest.CaptureFixture[str], apache: Apache, monkeypatch: pytest.MonkeyPatch) -> Commands:
    for name in ("NAMESRV_ADDR", "ROCKETMQ_HOME", "PYROMQ_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    return Commands(capsys, apache.namesrv)


def test_the_doctor_finds_a_cluster_of_apache_well(pyromq: Commands) -> None:
    rows = pyromq.rows("doctor")
    assert {row["status"] for row in rows} == {"ok"}
    assert {row["what"].split()[0] for row in rows} >= {"name", "broker", "clock", "disk"}


def test_a_file_is_applied_and_then_fulfilled_and_top_shows_it(pyromq: Commands, tmp_path: Path) -> None:
    file = tmp_path / "wanted.yaml"
    file.write_text("topics: [{name: newcomer, queues: 4}]\ngroups: [{name: newcomers, retryMax: 3}]\n")
    planned = pyromq.rows("apply", "-f", str(file))
    assert {row["action"] for row in planned} == {"create"}
    assert pyromq.rows("apply", "-f", str(file)) == []
    file.write_text("topics: [{name: newcomer, queues: 6}]\n")
    [update] = pyromq.rows("apply", "-f", str(file), "--yes")
    assert update["changes"] == {"readQueues": "4 → 6", "writeQueues": "4 → 6"}
    assert pyromq.rows("topic", "describe", "newcomer")[0]["readQueues"] == 6
    [shown] = [row for row in pyromq.rows("top", "--once", "-i", "0.2") if row["topic"] == "newcomer"]
    assert (shown["group"], shown["inTps"]) == (None, 0.0)
