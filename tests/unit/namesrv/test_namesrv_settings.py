"""The name server's settings: RocketMQ's keys and defaults, and their change at run time."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.settings_kit import change as changed

from pyromq.errors import ConfigError, NoPermission, ServerError
from pyromq.namesrv import NamesrvConfig, check_folders, check_settings, load_settings
from pyromq.namesrv.live_settings import LiveSettings
from pyromq.remoting import ServerConfig, TlsConfig, TlsMode
from pyromq.settings.live import remark_on


def test_every_key_of_rocketmq_is_known_with_its_default(monkeypatch):
    monkeypatch.setenv("HOME", "/home/user")
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    expected = """
        rocketmqHome= kvConfigPath=/home/user/namesrv/kvConfig.json
        configStorePath=/home/user/namesrv/namesrv.properties productEnvName=center clusterTest=false
        orderMessageEnable=false configBlackList=configBlackList;configStorePath;kvConfigPath
        returnOrderTopicConfigToBroker=true clientRequestThreadPoolNums=8 clientRequestThreadPoolQueueCapacity=50000
        defaultThreadPoolNums=16 defaultThreadPoolQueueCapacity=10000 scanNotActiveBrokerInterval=5000
        unRegisterBrokerQueueCapacity=3000 supportActingMaster=false enableAllTopicList=true enableTopicList=true
        notifyMinBrokerIdChanged=false enableControllerInNamesrv=false needWaitForService=false
        waitSecondsForService=45 deleteTopicWithBrokerRegistration=false

        listenPort=9876 serverWorkerThreads=8 serverCallbackExecutorThreads=0 serverSelectorThreads=3
        serverOnewaySemaphoreValue=256 serverAsyncSemaphoreValue=64 serverChannelMaxIdleTimeSeconds=120
        serverSocketSndBufSize=0 serverSocketRcvBufSize=0 writeBufferHighWaterMark=0 writeBufferLowWaterMark=0
        serverSocketBacklog=1024 serverPooledByteBufAllocatorEnable=true useEpollNativeSelector=false
        bindAddress=0.0.0.0 serverNettyWorkerGroupEnable=true enableShutdownGracefully=false
        shutdownWaitTimeSeconds=30
    """
    items = dict(load_settings().items())
    for pair in expected.split():
        key, _, value = pair.partition("=")
        assert (key, items.get(key)) == (key, value)


def test_a_file_of_rocketmq_is_taken_over_as_it_is(tmp_path):
    file = tmp_path / "namesrv.properties"
    file.write_text("listenPort=19876\nserverWorkerThreads = 16\ntls.server.mode: enforcing\nmine=1\n")
    settings = load_settings(file)
    assert settings[ServerConfig].listen_port == 19876
    assert settings[TlsConfig].mode is TlsMode.ENFORCING
    assert [notice.partition(": ")[2].partition(":")[0] for notice in settings.notices()] == [
        "unknown setting mine",
        "serverWorkerThreads has no effect",
    ]


def test_the_file_given_is_the_one_that_changes_are_written_to(tmp_path):
    file = tmp_path / "namesrv.properties"
    file.write_text("configStorePath=/elsewhere\n")
    settings = load_settings(file)
    assert settings[NamesrvConfig].config_store_path == str(file)
    assert settings.origin("configStorePath") == "-c"
    assert load_settings(file, sets=["configStorePath=/x"])[NamesrvConfig].config_store_path == "/x"


def test_four_keys_are_always_black_listed():
    always = {"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"}
    assert NamesrvConfig(config_black_list="").black_list == always
    assert NamesrvConfig(config_black_list="listenPort; bindAddress;").black_list == always | {
        "listenPort",
        "bindAddress",
    }


def test_a_change_at_run_time_is_seen_by_the_next_look():
    live = LiveSettings(load_settings())
    changed(live, b"# a comment\norderMessageEnable = true\nstranger=1\nlistenPort=9876\n", "admin")
    assert live.config.order_message_enable
    assert live.settings.value("stranger") is None
    assert live.settings.origin("orderMessageEnable") == "request from admin"


@pytest.mark.parametrize("key", ["kvConfigPath", "configStorePath", "configBlackList", "rocketmqHome", "bindAddress"])
def test_a_black_listed_key_refuses_the_whole_change(key):
    live = LiveSettings(load_settings(sets=["configBlackList=bindAddress"]))
    with pytest.raises(NoPermission, match=r"Can not update config in black list\."):
        changed(live, f"orderMessageEnable=true\n{key}=/x".encode(), "admin")
    assert not live.config.order_message_enable


def test_a_text_that_is_not_properties_is_refused():
    with pytest.raises(ServerError, match="string2Properties error"):
        changed(LiveSettings(load_settings()), rb"orderMessageEnable=\uXXXX", "admin")


def test_a_malformed_value_refuses_the_whole_change():
    live = LiveSettings(load_settings())
    with pytest.raises(ServerError, match="waitSecondsForService must be a whole number, not 'long'"):
        changed(live, b"orderMessageEnable=true\nwaitSecondsForService=long", "admin")
    assert not live.config.order_message_enable


@pytest.mark.parametrize("change", ["listenPort=1", "tls.server.mode=enforcing", "clusterTest=true", "bindAddress=::1"])
def test_what_counts_at_a_start_only_is_changed_in_the_file(change):
    live = LiveSettings(load_settings(sets=["configStorePath=/etc/namesrv.properties"]))
    key = change.partition("=")[0]
    with pytest.raises(ServerError, match=rf"{key} cannot be changed .* set it in /etc/namesrv.properties and restart"):
        changed(live, f"orderMessageEnable=true\n{change}".encode(), "admin")
    assert not live.config.order_message_enable


def test_a_value_that_stops_the_start_is_refused_at_run_time():
    with pytest.raises(ConfigError, match=r"productNamesrvAddr: .* is not an address"):
        check_settings(load_settings(sets=["productNamesrvAddr=nowhere"]))
    with pytest.raises(ServerError, match=r"productNamesrvAddr: .* is not an address"):
        changed(LiveSettings(load_settings()), b"productNamesrvAddr=nowhere", "admin")


def test_a_change_without_effect_says_so(caplog):
    update = changed(LiveSettings(load_settings()), b"serverWorkerThreads=16", "admin")
    said = "serverWorkerThreads has no effect: there are no thread pools"
    assert said in (remark_on(update) or "")
    assert said in caplog.text


def test_a_place_for_kv_config_that_cannot_be_written_stops_the_start_only_if_it_was_chosen(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(ConfigError, match=r"^--set: kvConfigPath .*file is not a directory"):
        check_folders(load_settings(sets=[f"kvConfigPath={blocked}/a/kv.json"]))
    monkeypatch.setenv("HOME", str(blocked))
    [warning] = check_folders(load_settings())
    assert warning.startswith("KV config will not survive a restart")
    assert check_folders(load_settings(sets=[f"kvConfigPath={tmp_path}/new/folder/kv.json"])) == []
    assert not (tmp_path / "new").exists()


def test_a_folder_of_another_user_is_reported_with_the_cure(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write everywhere
    with pytest.raises(ConfigError, match=f"belongs to uid .* chown .* {Path(tmp_path)} lets it write"):
        check_folders(load_settings(sets=[f"kvConfigPath={tmp_path}/kv.json"]))


def test_a_tls_file_counts_where_nothing_else_sets_a_key(tmp_path: Path) -> None:
    tls_file = tmp_path / "tls.properties"
    tls_file.write_text("tls.server.mode=enforcing\ntls.test.mode.enable=false\nlistenPort=1\n")
    settings = load_settings(sets=[f"tls.config.file={tls_file}", "tls.test.mode.enable=true"])
    assert settings.value("tls.server.mode") == "enforcing"
    assert settings.origin("tls.server.mode") == f"{tls_file}:1"
    assert settings.value("tls.test.mode.enable") == "true"
    assert settings.value("listenPort") == "9876"


def test_a_chosen_tls_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.properties"):
        load_settings(sets=[f"tls.config.file={tmp_path / 'nowhere.properties'}"])


def test_settings_that_were_saved_with_all_their_defaults_can_be_loaded_again(tmp_path: Path) -> None:
    saved = tmp_path / "namesrv.properties"
    saved.write_text("".join(f"{key}={value}\n" for key, value in load_settings().items()))
    assert dict(load_settings(saved).items()) == dict(load_settings().items()) | {"configStorePath": str(saved)}
