"""`pyromq controller` as a process, embedded in a name server and in `pyromq up`; and killed at the worst moment."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from tests.bounds import TOO_LONG
from tests.integration.namesrv.raw_client import RawClient

pytestmark = pytest.mark.slow

ADDRESS = re.compile(r"Listening on (.+):(\d+), open to this machine only; nothing is authenticated\.\n")
HERE = ("bindAddress=127.0.0.1", "controllerDLegerPeers=n0-127.0.0.1:0")


def environment(home):
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    return kept | {"HOME": str(home)}


def run(home, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "pyromq.cli.main", *arguments],
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=TOO_LONG,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@contextmanager
def running(home, *arguments):
    """A server as a process, and its lines of output."""
    with subprocess.Popen(
        [sys.executable, "-m", "pyromq.cli.main", *arguments],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def port_after(process, line):
    """The port in the line after `line`."""
    said = process.stdout.readline()
    while said.rstrip("\n") != line:
        assert said, process.stderr.read()
        said = process.stdout.readline()
    listening = ADDRESS.fullmatch(process.stdout.readline())
    assert listening
    return int(listening[2])


async def joined(port, count, name="b"):
    """Let so many brokers apply for their ids, as fast as they can; returns the ids that were acknowledged."""
    client = await RawClient.connect(port)
    given = []
    try:
        for _ in range(count):
            wanted = (await client.call(1012, {"brokerName": name})).ext["nextBrokerId"]
            asked = {"brokerName": name, "appliedBrokerId": wanted, "registerCheckCode": f"h{wanted}:1;5"}
            assert (await client.call(1013, asked)).code == 0
            given.append(int(wanted))
    finally:
        await client.close()
    return given


async def test_it_serves_until_a_signal(tmp_path):
    with running(tmp_path, "controller", *HERE) as process:
        port = port_after(process, "The Controller Server boot success. serializeType=JSON")
        assert await joined(port, 2) == [1, 2]
        process.send_signal(signal.SIGTERM)
        assert process.wait(TOO_LONG) == 0
    assert (tmp_path / "DLedgerController" / "journal").exists()


@pytest.mark.parametrize("round_", range(3))
async def test_what_was_acknowledged_survives_kill_9(tmp_path, round_):
    with running(tmp_path, "controller", *HERE) as process:
        port = port_after(process, "The Controller Server boot success. serializeType=JSON")
        given = await joined(port, 5 + 7 * round_)
        process.kill()
        process.wait(TOO_LONG)
    with running(tmp_path, "controller", *HERE) as process:
        port = port_after(process, "The Controller Server boot success. serializeType=JSON")
        client = await RawClient.connect(port)
        reply = await client.call(1006, {}, b'["b"]')
        await client.close()
        known = [replica["brokerId"] for replica in reply.json["replicasInfoTable"]["b"]["notInSyncReplicas"]]
        assert known == given
        assert await joined(port, 1) == [given[-1] + 1]


def test_a_damaged_journal_refuses_the_start_in_one_line(tmp_path):
    folder = tmp_path / "DLedgerController"
    folder.mkdir()
    (folder / "journal").write_text("nothing that we wrote\n")
    code, _, err = run(tmp_path, "controller", *HERE)
    assert code == 255
    line = err.splitlines()[-1]
    assert line.startswith(
        f"pyromq controller: {folder}/journal is damaged in line 1: the checksum does not fit. Restore"
    )


def test_a_folder_that_cannot_be_written_refuses_the_start(tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = run(tmp_path, "controller", *HERE, f"controllerStorePath={tmp_path}/file/store")
    assert code == 253
    assert "cannot be written" in err


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        (
            "controllerDLegerPeers=n0-a:1;n1-b:2;n2-c:3",
            "controllerDLegerPeers names 3 controllers; more than one needs controllerStore=etcd",
        ),
        ("controllerDLegerPeers=nowhere", "'nowhere' is not of the form n0-host:port"),
        ("controllerStore=etcd", "controllerStore=etcd needs controllerEtcdEndpoints"),
        ("controllerDLegerSelfId=n7", "controllerDLegerSelfId n7 is none of controllerDLegerPeers"),
    ],
)
def test_settings_that_no_controller_can_have_refuse_the_start(tmp_path, setting, sentence):
    code, _, err = run(tmp_path, "controller", *HERE, setting)
    assert code == 255
    assert sentence in err


def test_settings_are_printed(tmp_path):
    file = tmp_path / "controller.conf"
    file.write_text("controllerDLegerPeers = n0-127.0.0.1:9878\ncontrollerThreadPoolNums=3\nrubbish=1\n")
    code, out, err = run(tmp_path, "controller", "-c", str(file), "--print-config", "scanInactiveMasterInterval=100")
    lines = out.splitlines()
    assert code == 0
    assert f"controllerThreadPoolNums=3  # {file}:2; no effect" in lines
    assert "scanInactiveMasterInterval=100  # argument" in lines
    assert f"configStorePath={file}  # -c" in lines
    assert f"{file}:3: unknown setting rubbish" in err
    code, out, _ = run(tmp_path, "controller", "-p")
    assert (code, "enableElectUncleanMaster=false" in out.splitlines()) == (0, True)


async def test_a_controller_in_a_name_server_remembers_changes_of_its_settings(tmp_path):
    file = tmp_path / "namesrv.conf"
    own = ["enableControllerInNamesrv=true", "listenPort=0", f"controllerStorePath={tmp_path}/journal", *HERE]
    file.write_text("\n".join([*own, "scanInactiveMasterInterval=7000"]))
    for change, unclean, interval in ((b"enableElectUncleanMaster=true", "false", 7000), (b"", "true", 8000)):
        with running(tmp_path, "namesrv", "-c", str(file)) as process:
            port = port_after(process, "The ControllerManager boot success. serializeType=JSON")
            client = await RawClient.connect(port)
            said = ((await client.call(1010)).body or b"").decode().splitlines()
            assert f"enableElectUncleanMaster={unclean}" in said
            assert f"scanInactiveMasterInterval={interval}" in said
            if change:
                assert (await client.call(1009, {}, change)).code == 0
            await client.close()
            process.send_signal(signal.SIGTERM)
            assert process.wait(TOO_LONG) == 0
        assert "enableElectUncleanMaster" not in file.read_text()
        # What was not changed by a request is the file's to say.
        file.write_text("\n".join([*own, "scanInactiveMasterInterval=8000"]))
    assert (tmp_path / "journal/controller.properties").read_text() == "enableElectUncleanMaster=true\n"


async def test_a_name_server_runs_one_beside_it(tmp_path):
    file = tmp_path / "namesrv.conf"
    file.write_text("enableControllerInNamesrv=true\nlistenPort=0\nrubbish=1\n" + "\n".join(HERE))
    with running(tmp_path, "namesrv", "-c", str(file)) as process:
        line = process.stdout.readline()
        while "The Name Server boot success" not in line:
            assert line
            line = process.stdout.readline()
        namesrv = int(line.rstrip().rpartition(":")[2])
        port = port_after(process, "The ControllerManager boot success. serializeType=JSON")
        assert await joined(port, 1) == [1]
        client = await RawClient.connect(namesrv)
        assert (await client.call(106)).code == 0
        assert (await client.call(1005)).code == 3
        await client.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(TOO_LONG) == 0
        err = process.stderr.read()
    # The file is of both, so only what neither knows is told.
    assert f"{file}:3: unknown setting rubbish" in err
    assert err.count("unknown setting") == 1


async def test_up_runs_one_beside_its_name_server(tmp_path):
    data = tmp_path / "data"
    ports = ("--namesrv-port", "0", "--broker-port", "0")
    arguments = ("--data", str(data), *ports, "enableControllerInNamesrv=true", "haListenPort=0")
    with running(tmp_path, "up", *arguments) as process:
        line = process.stdout.readline()
        assert "is ready" in line, process.stderr.read()
        assert (data / "controller" / "journal").exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(TOO_LONG) == 0
        assert "unknown setting" not in process.stderr.read()
