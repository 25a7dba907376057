"""The command `pyromq broker` as a process: what it prints, how it ends."""

from __future__ import annotations

import asyncio
import signal
import socket

import pytest
from tests.integration.broker.command_kit import line_with, run, started, stop
from tests.integration.broker.life_kit import Peer, new_name_server
from tests.ports import free_port

pytestmark = pytest.mark.slow


def settings(folder, *more):
    return [f"storePathRootDir={folder}", "brokerIP1=127.0.0.1", "brokerName=broker-a", "drainSeconds=0", *more]


def test_help_and_unknown_options_say_how_to_use_it(tmp_path):
    code, out, _ = run(tmp_path, "broker", "-h")
    assert code == 0
    for option in ("-c, --configFile", "-n, --namesrvAddr", "-p, --printConfigItem", "-m, --printImportantConfig"):
        assert option in out
    assert "--supervised" not in out
    code, out, err = run(tmp_path, "broker", "--nonsense")
    assert (code, out) == (1, "")
    assert "--nonsense" in err


def test_settings_can_be_printed_all_or_the_important_ones_or_with_where_they_came_from(tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text("brokerName: broker-x\nlistenPort=20911\n")
    code, out, _ = run(tmp_path, "broker", "-c", str(file), "-p")
    assert code == 0
    assert {"brokerName=broker-x", "listenPort=20911", "brokerRole=ASYNC_MASTER"} <= set(out.splitlines())

    code, out, _ = run(tmp_path, "broker", "-c", str(file), "-m", "-n", "ns:9876")
    assert code == 0
    assert {"brokerName=broker-x", "namesrvAddr=ns:9876"} <= set(out.splitlines())
    assert "listenPort" not in out

    environ = {"NAMESRV_ADDR": "env:1"}
    code, out, _ = run(tmp_path, "broker", "-c", str(file), "--print-config", "brokerId=3", environ=environ)
    assert f"listenPort=20911  # {file}:2" in out
    assert "namesrvAddr=env:1  # environment NAMESRV_ADDR" in out
    assert "brokerId=0  # brokerRole ASYNC_MASTER" in out


def test_an_unknown_key_is_reported_with_the_one_it_resembles(tmp_path):
    code, _, err = run(tmp_path, "broker", "-p", "autoCreateTopicsEnable=false")
    assert code == 0
    assert "unknown setting autoCreateTopicsEnable; did you mean autoCreateTopicEnable?" in err


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        pytest.param(
            ["brokerRole=SLAVE", "brokerId=0"],
            253,
            "brokerRole SLAVE needs a brokerId above 0",
            marks=pytest.mark.scenario("broker 1.2"),
        ),
        (["enableDLegerCommitLog=true"], 253, "enableControllerMode with controllerAddr fails over as well"),
        (["-n", "nonsense"], 253, "'nonsense' is not an address"),
        (["brokerPermission=all"], 255, "brokerPermission must be a whole number"),
        (["-c", "missing.conf"], 255, "missing.conf: cannot be read"),
        (
            ["storePathRootDir=/dev/null/store"],
            253,
            "storePathRootDir /dev/null/store is not writable: /dev/null is not a directory",
        ),
    ],
)
def test_what_stops_the_start_is_said_in_one_line(tmp_path, arguments, code, sentence):
    done, out, err = run(tmp_path, "broker", "listenPort=0", *arguments)
    assert (done, out) == (code, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_a_port_that_is_taken_is_a_failed_start(tmp_path):
    port = free_port()
    with socket.create_server(("0.0.0.0", port)):
        code, out, err = run(tmp_path, "broker", *settings(tmp_path / "store"), f"listenPort={port}")
    assert (code, out) == (255, "")
    assert f"port {port} is taken" in err


@pytest.mark.scenario("broker 1.4")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_cleanly_and_it_comes_back_with_everything(tmp_path, number):
    store = tmp_path / "store"
    port = free_port()
    address = f"127.0.0.1:{port}"
    arguments = settings(store, f"listenPort={port}", "mappedFileSizeCommitLog=1m")
    async with new_name_server(tmp_path) as name_server, Peer() as peer:
        for round_number in range(2):
            with started(tmp_path, "broker", "-n", name_server.address, *arguments) as process:
                assert await asyncio.to_thread(line_with, process, "boot") == (
                    f"The broker[broker-a, {address}] boot success. serializeType=JSON"
                    f" and name server is {name_server.address}"
                )
                where = await asyncio.to_thread(line_with, process, "Listening")
                reach = "open to anyone who can reach this machine"
                assert where == f"Listening on 0.0.0.0:{port}, {reach}; nothing is authenticated."
                assert await peer.brokers(name_server.address) == {("broker-a", 0): address}
                for _ in range(10):
                    await peer.send(address)
                assert (await peer.pull(address, 10 * round_number)).code == 0
                code, _, err = await asyncio.to_thread(stop, process, number)
                assert code == 0, err
                assert f"stopping on {number.name}" in err
            assert await peer.brokers(name_server.address) == {}
            assert not (store / "abort").exists()


async def test_a_second_signal_ends_it_on_the_spot(tmp_path):
    port = free_port()
    arguments = settings(tmp_path / "store", f"listenPort={port}")
    with started(tmp_path, "broker", *arguments, "drainSeconds=600") as process:
        line_with(process, "boot")
        async with Peer() as peer:
            await peer.send(f"127.0.0.1:{port}")
            process.send_signal(signal.SIGTERM)
            for line in process.stderr:
                if "stopping on SIGTERM" in line:
                    break
            assert stop(process, signal.SIGTERM)[0] == 128 + signal.SIGTERM
