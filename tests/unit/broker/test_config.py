"""Settings of a broker: where they come from, which of them stop the start, and how they change at run time."""

from __future__ import annotations

import pytest
from tests.unit.settings_kit import change as changed

from pyromq.broker.config import (
    BrokerConfig,
    BrokerRole,
    BrokerServerConfig,
    LiveConfig,
    cautions,
    check_settings,
    important,
    load_settings,
)
from pyromq.errors import ConfigError, NoPermission, ServerError
from pyromq.remoting import ServerConfig
from pyromq.settings import Settings
from pyromq.store.config import StoreConfig


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "broker.conf"
        path.write_text(text)
        return path

    return write


# Sources


def test_the_port_of_a_broker_is_10911_and_that_of_other_servers_stays():
    settings = load_settings()
    assert settings[BrokerServerConfig].listen_port == 10911
    assert settings.origin("listenPort") == "default"
    assert ServerConfig().listen_port == 9876
    assert isinstance(settings[BrokerServerConfig], ServerConfig)


def test_every_key_of_the_specification_is_known():
    known = dict(load_settings().items())
    for key in KEYS.split():
        assert key in known, key


def test_defaults_are_those_of_rocketmq():
    known = dict(load_settings().items())
    assert {key: known[key] for key in DEFAULTS} == DEFAULTS


@pytest.mark.scenario("broker 1.1")
def test_a_master_has_the_id_0_whatever_the_file_says(file):
    settings = load_settings(file("brokerId=3\nbrokerRole=ASYNC_MASTER\n"))
    assert settings[BrokerConfig].broker_id == 0
    assert settings.origin("brokerId") == "brokerRole ASYNC_MASTER"
    assert load_settings(sets=["brokerId=3", "brokerRole=SLAVE"])[BrokerConfig].broker_id == 3


def test_the_variable_of_rocketmq_counts_less_than_the_file_and_n_more_than_all(file):
    environ = {"NAMESRV_ADDR": "env:1", "PYROMQ_LISTEN_PORT": "7"}
    alone = load_settings(environ=environ)
    assert alone[BrokerConfig].namesrv_addr == "env:1"
    assert alone.origin("namesrvAddr") == "environment NAMESRV_ADDR"
    assert alone[BrokerServerConfig].listen_port == 7

    path = file("namesrvAddr=file:1")
    assert load_settings(path, environ=environ)[BrokerConfig].namesrv_addr == "file:1"
    settings = load_settings(path, environ=environ, arguments=["namesrvAddr=bare:1"], namesrv_addr="flag:1")
    assert settings[BrokerConfig].namesrv_addr == "flag:1"
    assert settings.origin("namesrvAddr") == "-n"


def test_changes_at_run_time_go_to_the_file_that_was_given(file):
    path = file("brokerName=a")
    assert load_settings(path)[BrokerConfig].config_path == str(path)
    assert load_settings(path).origin("brokerConfigPath") == "-c"
    chosen = load_settings(path, sets=["brokerConfigPath=/elsewhere"])
    assert chosen[BrokerConfig].config_path == "/elsewhere"
    assert load_settings()[BrokerConfig].config_path.endswith("store/config/broker.properties")


def test_a_malformed_value_is_named_with_file_and_line(file):
    path = file("brokerName=a\nbrokerPermission=many\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(path)
    assert caught.value.source == f"{path}:2"


# What stops the start


@pytest.mark.parametrize(
    ("sets", "reason"),
    [
        (["namesrvAddr=localhost"], "is not an address of the form host:port"),
        (["brokerRole=SLAVE", "brokerId=0"], "needs a brokerId above 0"),
        (["enableDLegerCommitLog=true"], "enableControllerMode with controllerAddr fails over as well"),
        (["enableControllerMode=true"], "enableControllerMode needs controllerAddr"),
        (["enableControllerMode=true", "controllerAddr=nowhere"], "controllerAddr: .*nowhere"),
        (["enableControllerMode=true", "controllerAddr=a:1", "brokerName=a#b"], "brokerName must not contain #"),
        (["brokerRole=SLAVE", "brokerId=1", "haMasterAddress=nowhere"], "haMasterAddress: .*nowhere"),
        (["innerClientAuthenticationCredentials=me"], "innerClientAuthenticationCredentials must be"),
        (["messageDelayLevel=1s soon"], "'soon' is not a time"),
        (["storePathRootDir=/s", "storePathConsumeQueue=/q"], "storePathConsumeQueue cannot be /q: .* /s/consumequeue"),
        (["storePathRootDir=/s", "storePathIndex=/s/idx"], "storePathIndex cannot be /s/idx: it is always /s/index"),
        (["storePathRootDir=/s", "storeCheckpoint=/c"], "storeCheckpoint cannot be /c: it is always /s/checkpoint"),
        (["storePathRootDir=/s", "abortFile=/s/a"], "abortFile cannot be /s/a: it is always /s/abort"),
    ],
)
def test_what_leads_nowhere_stops_the_start_with_a_sentence(sets, reason):
    with pytest.raises(ConfigError, match=reason):
        check_settings(load_settings(sets=sets))


def test_masters_with_and_without_name_servers_may_start():
    check_settings(load_settings())
    check_settings(load_settings(sets=["namesrvAddr=a:1; [::1]:2,b:3", "brokerRole=SYNC_MASTER"]))


def test_a_file_may_list_the_places_that_a_store_has_anyway():
    places = ["storePathConsumeQueue=/s/consumequeue", "storePathIndex=/s/index", "storeCheckpoint=/s/checkpoint"]
    check_settings(load_settings(sets=["storePathRootDir=/s", *places, "abortFile=/s/abort"]))


def test_filter_bitmaps_are_said_to_need_a_place():
    assert cautions(load_settings(sets=["enableCalcFilterBitMap=true", "enableConsumeQueueExt=true"])) == []
    [caution] = cautions(load_settings(sets=["enableCalcFilterBitMap=true"]))
    assert "enableCalcFilterBitMap has no effect without enableConsumeQueueExt" in caution


def test_a_sync_master_that_waits_for_no_slave_is_told_so():
    assert cautions(load_settings(sets=["brokerRole=SYNC_MASTER"])) == []
    [caution] = cautions(load_settings(sets=["brokerRole=SYNC_MASTER", "inSyncReplicas=1"]))
    assert "waits for no slave" in caution


# What follows from them


def test_the_pause_between_registrations_stays_within_bounds():
    assert [BrokerConfig(register_period=period).register_interval for period in (1, 30_000, 10**7)] == [10, 30, 60]


def test_the_short_list_has_the_important_keys_and_hides_nothing_of_them():
    shown = dict(important(load_settings(sets=["brokerName=b"])))
    assert shown["brokerName"] == "b"
    assert "listenPort" not in shown
    assert len(shown) == 34


def test_the_local_address_is_one_that_packets_leave_from():
    address = BrokerConfig().broker_ip1
    assert address == BrokerConfig().broker_ip2
    assert address.count(".") == 3


# Changes at run time


def live(*sets):
    return LiveConfig(load_settings(sets=sets))


def test_a_change_is_seen_by_everyone_who_looks_again():
    settings = live()
    update = changed(settings, b"brokerPermission=4\nflushConsumerOffsetInterval=7000", now=5)
    assert update is not None
    assert update.changed == ["brokerPermission", "flushConsumerOffsetInterval"]
    assert settings.config.broker_permission == 4
    assert (settings.version.counter, settings.version.timestamp) == (1, 5)


def test_settings_of_the_store_change_with_the_others():
    settings = live()
    changed(settings, b"maxMessageSize=1024", now=5)
    assert settings.settings[StoreConfig].max_message_size == 1024


@pytest.mark.parametrize("key", ["brokerConfigPath", "rocketmqHome", "configBlackList", "mine"])
def test_a_key_of_the_black_list_changes_nothing_at_all(key):
    settings = live("configBlackList=mine")
    with pytest.raises(NoPermission, match="Can not update config in black list"):
        changed(settings, f"brokerPermission=4\n{key}=x".encode(), now=5)
    assert settings.config.broker_permission == 6
    assert settings.version.counter == 0


def test_the_black_list_cannot_be_emptied_first():
    settings = live("configBlackList=regionId")
    with pytest.raises(NoPermission):
        changed(settings, b"configBlackList=", now=1)
    with pytest.raises(NoPermission):
        changed(settings, b"regionId=x", now=1)


@pytest.mark.parametrize("text", [b"", b"brokerName", b"# nothing\n"])
def test_a_text_without_an_assignment_changes_nothing(text):
    settings = live("brokerName=b")
    assert changed(settings, text, now=1) is None
    assert settings.config.broker_name == "b"
    assert settings.version.counter == 0


def test_what_is_no_properties_text_or_no_value_is_refused_whole():
    settings = live()
    with pytest.raises(ServerError, match="string2Properties error"):
        changed(settings, b"a=\\u12", now=1)
    with pytest.raises(ServerError, match="brokerPermission must be a whole number"):
        changed(settings, b"regionId=x\nbrokerPermission=all", now=1)
    assert settings.config.region_id == "DefaultRegion"


def test_an_unknown_key_is_dropped():
    settings = live()
    update = changed(settings, b"nobodyKnows=1", now=1)
    assert update is not None
    assert (update.changed, update.ignored) == ([], ["nobodyKnows"])
    assert settings.settings.unknown == {}


@pytest.mark.parametrize(
    "change",
    [
        "listenPort=1",
        "storePathRootDir=/elsewhere",
        "brokerRole=SYNC_MASTER",
        "mappedFileSizeCommitLog=1024",
        "flushDiskType=SYNC_FLUSH",
        "tls.server.mode=disabled",
        "brokerIP1=10.0.0.1",
    ],
)
def test_what_counts_at_a_start_only_is_changed_in_the_file(change):
    settings = live("brokerConfigPath=/etc/broker.conf")
    key = change.partition("=")[0]
    with pytest.raises(ServerError, match=rf"{key} cannot be changed .* set it in /etc/broker.conf and restart"):
        changed(settings, f"brokerPermission=4\n{change}".encode(), now=1)
    assert settings.config.broker_permission == 6
    assert settings.version.counter == 0


def test_a_new_root_is_not_called_wrong_for_the_places_that_were_in_the_old_one():
    settings = live("storePathRootDir=/s", "storePathIndex=/s/index")
    with pytest.raises(ServerError, match="storePathRootDir cannot be changed while the server runs"):
        changed(settings, b"storePathRootDir=/elsewhere", now=1)


def test_a_value_that_is_there_already_may_be_sent_again():
    settings = live("listenPort=1234")
    changed(settings, b"listenPort=1234\nbrokerPermission=4", now=1)
    assert settings.config.broker_permission == 4


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("namesrvAddr=localhost", "is not an address of the form host:port"),
        ("innerClientAuthenticationCredentials=me", "innerClientAuthenticationCredentials must be"),
        ("brokerRole=SLAVE", "needs a brokerId above 0"),
        ("storePathIndex=/other", "storePathIndex cannot be /other"),
    ],
)
def test_no_value_is_taken_that_the_next_start_refuses(change, reason):
    settings = live()
    with pytest.raises(ServerError, match=reason):
        changed(settings, change.encode(), now=1)
    check_settings(settings.settings)


def test_settings_can_be_made_in_code():
    settings = LiveConfig.of(BrokerConfig(broker_role=BrokerRole.SLAVE, broker_id=1))
    assert settings.config.is_slave
    assert isinstance(settings.settings, Settings)


KEYS = """
namesrvAddr brokerClusterName brokerName brokerId brokerIP1 brokerIP2 listenPort haListenPort brokerRole flushDiskType
slaveTimeout syncFlushTimeout brokerPermission autoCreateTopicEnable defaultTopicQueueNums clusterTopicEnable
brokerTopicEnable autoCreateSubscriptionGroup traceTopicEnable msgTraceTopicName traceOn regionId aclEnable
rejectTransactionMessage transactionTimeOut transactionCheckMax transactionCheckInterval enablePropertyFilter
filterSupportRetry enableCalcFilterBitMap enableConsumeQueueExt expectConsumerNumUseFilter maxErrorRateOfBloomFilter
longPollingEnable shortPollingTimeMills notifyConsumerIdsChangedEnable slaveReadEnable
disableConsumeIfConsumerReadSlowly consumerFallbehindThreshold flushConsumerOffsetInterval filterDataCleanTimeSpan
registerNameServerPeriod registerBrokerTimeoutMills forceRegister compressedRegister fetchNamesrvAddrByAddressServer
rmqAddressServerDomain rmqAddressServerSubGroup brokerFastFailureEnable waitTimeMillsInSendQueue
waitTimeMillsInPullQueue waitTimeMillsInHeartbeatQueue waitTimeMillsInTransactionQueue sendThreadPoolQueueCapacity
pullThreadPoolQueueCapacity queryThreadPoolQueueCapacity endTransactionPoolQueueCapacity
heartbeatThreadPoolQueueCapacity replyThreadPoolQueueCapacity startAcceptSendRequestTimeStamp storeReplyMessageEnable
enableDetailStat autoDeleteUnusedStats configBlackList storePathRootDir storePathCommitLog mappedFileSizeCommitLog
mappedFileSizeConsumeQueue deleteWhen fileReservedTime diskMaxUsedSpaceRatio cleanFileForciblyEnable messageDelayLevel
flushDelayOffsetInterval maxTransferBytesOnMessageInMemory maxTransferCountOnMessageInMemory
maxTransferBytesOnMessageInDisk maxTransferCountOnMessageInDisk accessMessageInMemoryMaxRatio messageIndexEnable
maxMsgsNumBatch defaultQueryMaxNum maxMessageSize osPageCacheBusyTimeOutMills haMasterAddress offsetCheckInSlave
flushIntervalCommitLog commitIntervalCommitLog flushCommitLogTimed messageIndexSafe transientStorePoolEnable
"""

DEFAULTS = {
    "brokerClusterName": "DefaultCluster",
    "brokerRole": "ASYNC_MASTER",
    "flushDiskType": "ASYNC_FLUSH",
    "brokerPermission": "6",
    "autoCreateTopicEnable": "true",
    "defaultTopicQueueNums": "8",
    "traceTopicEnable": "false",
    "msgTraceTopicName": "RMQ_SYS_TRACE_TOPIC",
    "transactionCheckInterval": "60000",
    "consumerFallbehindThreshold": "17179869184",
    "registerNameServerPeriod": "30000",
    "registerBrokerTimeoutMills": "6000",
    "sendThreadPoolQueueCapacity": "10000",
    "pullThreadPoolQueueCapacity": "100000",
    "endTransactionPoolQueueCapacity": "100000",
    "waitTimeMillsInHeartbeatQueue": "31000",
    "configBlackList": "configBlackList;brokerConfigPath",
    "mappedFileSizeConsumeQueue": "6000000",
}
