"""What `pyromq up` starts with which settings. That it runs is shown in tests/integration/broker/test_up_command.py."""

from __future__ import annotations

import pytest

from pyromq.broker.config import BrokerConfig, BrokerRole, BrokerServerConfig
from pyromq.cli.servers.up import Plan
from pyromq.controller import ControllerConfig
from pyromq.controller.config import controllers
from pyromq.controller.decisions import Peer
from pyromq.namesrv import NamesrvConfig
from pyromq.remoting import ServerConfig
from pyromq.store.config import StoreConfig


@pytest.fixture
def plan(tmp_path, monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    def make(*arguments, **options):
        return Plan(data=tmp_path, arguments=arguments, **options)

    return make


def test_a_broker_is_told_what_suits_a_laptop(plan, tmp_path):
    settings = plan().broker(0, 9876, 10911)
    config = settings[BrokerConfig]
    assert (config.broker_name, config.broker_ip1, config.namesrv_addr) == ("broker-a", "127.0.0.1", "127.0.0.1:9876")
    assert (config.trace_topic_enable, config.drain_seconds, config.fast_failure) == (True, 0, False)
    assert config.enable_property_filter
    assert settings[StoreConfig].root == str(tmp_path / "broker-a")
    assert settings[StoreConfig].commit_log_file_size == 64 * 1024 * 1024
    assert settings.origin("mappedFileSizeCommitLog") == "pyromq up"


def test_arguments_win_over_what_suits_a_laptop(plan):
    settings = plan("brokerName=mine", "mappedFileSizeCommitLog=1g", "drainSeconds=7").broker(0, 9876, 10911)
    assert settings[BrokerConfig].broker_name == "mine"
    assert settings[BrokerConfig].drain_seconds == 7
    assert settings[StoreConfig].commit_log_file_size == 1 << 30


def test_further_brokers_have_their_own_names_ports_and_folders(plan, tmp_path):
    settings = plan("brokerName=mine", "listenPort=1", "maxMessageSize=1m").broker(2, 9876, 10911)
    assert settings[BrokerConfig].broker_name == "broker-c"
    assert settings[BrokerServerConfig].listen_port == 10931
    assert settings[StoreConfig].root == str(tmp_path / "broker-c")
    assert settings[StoreConfig].max_message_size == 1 << 20


def test_slaves_have_the_name_of_their_master_and_ports_and_folders_of_their_own(plan, tmp_path):
    both = plan("brokerName=mine", "brokerRole=SYNC_MASTER", "brokerId=0", brokers=2, replicas=2)
    members = both.slaves(9876, 10911, [])
    assert [each.name for each in members] == [
        "broker-a-slave-1",
        "broker-a-slave-2",
        "broker-b-slave-1",
        "broker-b-slave-2",
    ]
    assert [each.environ["PYROMQ_BROKER_NAME"] for each in members] == ["mine", "mine", "broker-b", "broker-b"]
    assert [each.environ["PYROMQ_BROKER_ID"] for each in members] == ["1", "2", "1", "2"]
    assert {each.environ["PYROMQ_BROKER_ROLE"] for each in members} == {"SLAVE"}
    ports = [each.environ["PYROMQ_LISTEN_PORT"] for each in members]
    assert ports == ["10931", "10951", "10941", "10961"]
    folders = [each.environ["PYROMQ_STORE_PATH_ROOT_DIR"] for each in members]
    assert folders == [str(tmp_path / each.name) for each in members]
    assert both.broker(0, 9876, 10911)[BrokerConfig].broker_role is BrokerRole.SYNC_MASTER


def test_the_settings_of_further_brokers_travel_in_the_environment(plan):
    [member] = plan("tls.server.keyPassword=secret", brokers=2).further_brokers(9876, 10911, ["--log-level", "info"])
    assert member.name == "broker-b"
    assert "secret" not in " ".join(member.arguments)
    assert member.environ["PYROMQ_TLS_SERVER_KEY_PASSWORD"] == "secret"
    assert member.environ["PYROMQ_LISTEN_PORT"] == "10921"
    assert member.environ["PYROMQ_NAMESRV_ADDR"] == "127.0.0.1:9876"
    assert "PYROMQ_BROKER_PERMISSION" not in member.environ


def test_what_was_changed_at_run_time_counts_but_not_where_the_broker_was(plan, tmp_path):
    file = tmp_path / "broker-a" / "config" / "broker.properties"
    file.parent.mkdir(parents=True)
    file.write_text("regionId=north\nbrokerIP1=10.0.0.9\nlistenPort=1\nnamesrvAddr=gone:1\ndrainSeconds=3\n")
    settings = plan().broker(0, 9876, 10911)
    config = settings[BrokerConfig]
    assert (config.region_id, config.drain_seconds) == ("north", 3)
    assert (config.broker_ip1, config.namesrv_addr) == ("127.0.0.1", "127.0.0.1:9876")
    assert settings[BrokerServerConfig].listen_port == 10911
    assert config.config_path == str(file)


def test_variables_that_mean_one_server_are_not_taken_for_both(plan, monkeypatch):
    monkeypatch.setenv("PYROMQ_LISTEN_PORT", "1")
    monkeypatch.setenv("NAMESRV_ADDR", "elsewhere:1")
    monkeypatch.setenv("PYROMQ_REGION_ID", "north")
    settings = plan().broker(0, 9876, 10911)
    assert settings[BrokerServerConfig].listen_port == 10911
    assert settings[BrokerConfig].namesrv_addr == "127.0.0.1:9876"
    assert settings[BrokerConfig].region_id == "north"
    assert plan().name_server()[ServerConfig].listen_port == 9876


def test_a_setting_goes_to_the_server_that_knows_it_or_to_both(plan, tmp_path):
    made = plan("orderMessageEnable=true", "bindAddress=127.0.0.1", "typo=1", advertise="example.org")
    of_name_server, of_broker = made.name_server(), made.broker(0, 9876, 10911)
    assert of_name_server[NamesrvConfig].order_message_enable
    assert of_name_server[NamesrvConfig].kv_config_path == str(tmp_path / "namesrv" / "kvConfig.json")
    assert of_name_server[ServerConfig].bind_address == of_broker[BrokerServerConfig].bind_address == "127.0.0.1"
    assert (list(of_name_server.unknown), list(of_broker.unknown)) == ([], ["typo"])
    assert of_broker[BrokerConfig].broker_ip1 == "example.org"


def test_only_this_machine_can_connect_unless_it_is_told_to_listen_elsewhere(plan):
    def heard(made):
        of_broker = made.broker(0, 9876, 10911)
        return (
            made.name_server()[ServerConfig].bind_address,
            of_broker[BrokerServerConfig].bind_address,
            of_broker[BrokerConfig].namesrv_addr,
            of_broker[BrokerConfig].broker_ip1,
        )

    assert heard(plan()) == ("127.0.0.1", "127.0.0.1", "127.0.0.1:9876", "127.0.0.1")
    assert heard(plan(listen="0.0.0.0")) == ("0.0.0.0", "0.0.0.0", "127.0.0.1:9876", "127.0.0.1")
    assert heard(plan(listen="10.0.0.5")) == ("10.0.0.5", "10.0.0.5", "10.0.0.5:9876", "10.0.0.5")
    assert heard(plan(listen="::")) == ("::", "::", "[::1]:9876", "::1")
    assert heard(plan(listen="0.0.0.0", advertise="example.org"))[3] == "example.org"
    assert heard(plan("bindAddress=0.0.0.0"))[:3] == ("0.0.0.0", "0.0.0.0", "127.0.0.1:9876")


def test_further_brokers_listen_where_the_first_does(plan):
    [member] = plan(brokers=2).further_brokers(9876, 10911, [])
    assert member.environ["PYROMQ_BIND_ADDRESS"] == "127.0.0.1"


def test_a_controller_runs_beside_the_name_server_if_it_is_asked_for(plan, tmp_path):
    assert plan().controller() is None
    made = plan("enableControllerInNamesrv=true", "scanInactiveMasterInterval=100", advertise="example.org")
    settings = made.controller()
    assert settings is not None
    assert controllers(settings)[0] == Peer("n0", "example.org:9878")
    config = settings[ControllerConfig]
    assert (config.store_path, config.scan_inactive_master_interval) == (str(tmp_path / "controller"), 100)
    assert settings[ServerConfig].bind_address == "127.0.0.1"
    assert made.broker(0, 9876, 10911).unknown == {}
    elsewhere = plan("enableControllerInNamesrv=true", "controllerDLegerPeers=n0-mq:7").controller()
    assert elsewhere is not None
    assert controllers(elsewhere)[0].address == "mq:7"


def test_what_was_changed_at_run_time_holds_in_the_next_run(plan, tmp_path):
    file = tmp_path / "controller" / "controller.properties"
    file.parent.mkdir()
    file.write_text("enableElectUncleanMaster=true\ncontrollerStorePath=/elsewhere\n")
    config = plan(failover=True, replicas=1).controller()[ControllerConfig]
    assert config.enable_elect_unclean_master
    assert (config.store_path, config.config_store_path) == (str(file.parent), str(file))
