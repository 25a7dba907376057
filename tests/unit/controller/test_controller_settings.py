"""The controller's settings: RocketMQ's keys, PyroMQ's defaults, and which of them make no sense."""

from __future__ import annotations

import sys

import pytest

from pyromq.controller import Controller, ControllerConfig, check_folders, check_settings, load_settings
from pyromq.controller import config as config_module
from pyromq.controller.config import controllers
from pyromq.controller.decisions import Peer
from pyromq.errors import ConfigError


def test_every_key_of_rocketmq_is_known_with_its_default(monkeypatch):
    monkeypatch.setenv("HOME", "/home/user")
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    expected = """
        rocketmqHome= controllerType=DLedger controllerDLegerGroup=group1 controllerDLegerPeers= controllerDLegerSelfId=
        controllerStorePath=/home/user/DLedgerController scanNotActiveBrokerInterval=5000 mappedFileSize=1073741824
        scanInactiveMasterInterval=5000 electMasterMaxRetryCount=3 enableElectUncleanMaster=false
        notifyBrokerRoleChanged=true isProcessReadEvent=false controllerThreadPoolNums=16
        controllerRequestThreadPoolQueueCapacity=50000 configStorePath=/home/user/controller/controller.properties
        configBlackList=configBlackList;configStorePath metricsExporterType=PROM metricsPromExporterPort=5559
        jRaftGroupId=jRaft-Controller jRaftServerId=localhost:9880 jRaftElectionTimeoutMs=1000
        jRaftInitConf=localhost:9880,localhost:9881,localhost:9882 jRaftSnapshotIntervalSecs=3600
        jRaftControllerRPCAddr=localhost:9770,localhost:9771,localhost:9772 controllerStore=journal
    """
    items = dict(load_settings().items())
    for pair in expected.split():
        key, _, value = pair.partition("=")
        assert (key, items.get(key)) == (key, value)


@pytest.mark.parametrize(
    ("sets", "me"),
    [
        ([], Peer("n0", "10.0.0.9:9878")),
        (["bindAddress=127.0.0.1"], Peer("n0", "127.0.0.1:9878")),
        (["controllerDLegerSelfId=n4", "bindAddress=::1"], Peer("n4", "[::1]:9878")),
        (["controllerDLegerPeers=n0-mq-1.example:7000"], Peer("n0", "mq-1.example:7000")),
        (["controllerDLegerPeers= n2-[::1]:7000 ;", "listenPort=9876"], Peer("n2", "[::1]:7000")),
    ],
)
def test_one_controller_needs_no_peers(sets, me, monkeypatch):
    monkeypatch.setattr(config_module, "local_address", lambda: "10.0.0.9")
    settings = load_settings(sets=sets)
    check_settings(settings)
    assert controllers(settings) == (me, [me])


def test_several_controllers_need_etcd():
    peers = "controllerDLegerPeers=n0-a:1;n1-b:2"
    etcd = ["controllerStore=etcd", "controllerEtcdEndpoints=e1:2379;e2:2379"]
    settings = load_settings(sets=[peers, "controllerDLegerSelfId=n1", *etcd])
    check_settings(settings)
    assert controllers(settings) == (Peer("n1", "b:2"), [Peer("n0", "a:1"), Peer("n1", "b:2")])
    with pytest.raises(ConfigError, match="names 2 controllers; more than one needs controllerStore=etcd"):
        check_settings(load_settings(sets=[peers]))


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("controllerDLegerPeers=127.0.0.1:9878", "'127.0.0.1:9878' is not of the form n0-host:port"),
        ("controllerDLegerPeers=n0-127.0.0.1", "is not of the form n0-host:port"),
        ("controllerDLegerPeers=n0-127.0.0.1:99999", "is not of the form n0-host:port"),
        ("controllerDLegerPeers=n0-a:1;n0-b:1", "has an id twice"),
        ("controllerEtcdEndpoints=nowhere", "controllerEtcdEndpoints: 'nowhere' is not an address"),
    ],
)
def test_what_makes_no_sense_is_named(setting, reason):
    with pytest.raises(ConfigError, match=reason):
        check_settings(load_settings(sets=[setting]))


def test_changes_go_to_the_file_unless_it_is_the_name_servers(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/user")
    file = tmp_path / "controller.conf"
    file.write_text("controllerDLegerGroup=g\nconfigStorePath=/elsewhere\n")
    assert load_settings(file)[ControllerConfig].config_store_path == str(file)
    embedded = load_settings(file, sets=["controllerStorePath=/var/lib/c"], embedded=True)
    assert embedded[ControllerConfig].config_store_path == "/var/lib/c/controller.properties"
    assert load_settings(file, sets=["configStorePath=/x"], embedded=True)[ControllerConfig].config_store_path == "/x"


def test_a_controller_in_a_name_server_reads_back_what_was_changed_while_it_ran(tmp_path):
    file, saved = tmp_path / "namesrv.conf", tmp_path / "store" / "controller.properties"
    file.write_text("scanInactiveMasterInterval=7000\nelectMasterMaxRetryCount=5\n")
    saved.parent.mkdir()
    saved.write_text(
        "enableElectUncleanMaster=true\nscanInactiveMasterInterval=100\nelectMasterMaxRetryCount=9\ncontrollerStorePath=/x\n"
    )

    def load(*sets, embedded=True):
        place = f"controllerStorePath={saved.parent}"
        return load_settings(file, sets=[place, *sets], embedded=embedded)[ControllerConfig]

    config = load("electMasterMaxRetryCount=4")
    assert config.enable_elect_unclean_master
    assert config.scan_inactive_master_interval == 100
    assert config.elect_master_max_retry_count == 4  # whoever starts it has the last word
    assert config.store_path == str(saved.parent)  # and what cannot change while it runs is not the file's to say
    assert not load(embedded=False).enable_elect_unclean_master
    saved.write_text("enableElectUncleanMaster=perhaps\n")
    with pytest.raises(ConfigError, match=r"controller\.properties:1"):
        load()


def test_a_journal_that_cannot_be_written_stops_the_start(tmp_path):
    (tmp_path / "file").write_text("")
    check_folders(load_settings(sets=[f"controllerStorePath={tmp_path}/new/folder"]))
    with pytest.raises(ConfigError, match=r"controllerStorePath .* cannot be written: .* is not a directory"):
        check_folders(load_settings(sets=[f"controllerStorePath={tmp_path}/file/folder"]))


ETCD = ["controllerStore=etcd", "controllerEtcdEndpoints=10.0.0.1:2379;10.0.0.2:2379"]


@pytest.mark.parametrize(
    ("sets", "sentence"),
    [
        (["controllerEtcdCaPath=/ca.pem"], "controllerEtcdCaPath needs controllerEtcdTls=true"),
        (
            ["controllerEtcdCertPath=/c", "controllerEtcdKeyPath=/k"],
            "controllerEtcdCertPath needs controllerEtcdTls=true",
        ),
        (["controllerEtcdTls=true", "controllerEtcdKeyPath=/k"], "CertPath and controllerEtcdKeyPath need each other"),
        (["controllerEtcdEndpoints=http://h:1/x"], "controllerEtcdEndpoints: 'http://h:1/x' is not an address"),
    ],
)
def test_settings_for_etcd_that_make_no_sense(sets, sentence):
    with pytest.raises(ConfigError, match=sentence):
        check_settings(load_settings(sets=[*ETCD, *sets]))


def test_several_controllers_share_an_etcd():
    peers = "controllerDLegerPeers=n0-a:1;n1-b:2;n2-c:3"
    settings = load_settings(sets=[*ETCD, peers, "controllerDLegerSelfId=n1", "controllerDLegerGroup=g"])
    check_settings(settings)
    assert controllers(settings) == (Peer("n1", "b:2"), [Peer("n0", "a:1"), Peer("n1", "b:2"), Peer("n2", "c:3")])
    assert settings[ControllerConfig].etcd_keys == "/pyromq/g/"
    named = load_settings(sets=[*ETCD, "controllerEtcdPrefix=/mine"])
    assert named[ControllerConfig].etcd_keys == "/mine/"


def test_the_password_for_etcd_is_not_shown():
    settings = load_settings(sets=[*ETCD, "controllerEtcdPassword=open sesame"])
    assert "open sesame" not in settings.listing()


async def test_without_the_extra_the_start_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    for module in ("pyromq.controller.etcd", "pyromq.controller.etcd_view", "pyromq.controller.gateway"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    here = ["bindAddress=127.0.0.1", "controllerDLegerPeers=n0-127.0.0.1:0", f"controllerStorePath={tmp_path}"]
    with pytest.raises(
        ConfigError, match=r"controllerStore=etcd needs aiohttp; pip install 'pyromq\[etcd\]' installs it"
    ):
        await Controller(load_settings(sets=[*ETCD, *here])).run()
