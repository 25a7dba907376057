"""`pyromq config validate`: what it says about files of settings, and its exit codes."""

from __future__ import annotations

import json

import pytest

from pyromq.cli.nouns import config


@pytest.fixture
def validate(tmp_path, capsys):
    def run(text, *options):
        file = tmp_path / "broker.conf"
        file.write_text(text)
        code = config.main(["validate", str(file), "-o", "json", *options])
        out, err = capsys.readouterr()
        assert not err
        return code, [(row["line"], row["level"], row["key"], row["remark"]) for row in json.loads(out)]

    return run


def test_a_file_of_rocketmq_is_well(validate):
    text = "brokerClusterName = DefaultCluster\nbrokerName: broker-a\nbrokerId=0\ndeleteWhen=04\nfileReservedTime 48\n"
    assert validate(text) == (0, [])


@pytest.mark.scenario("admin 6")
def test_a_misspelt_key_is_told_with_its_line_and_the_nearest_name(validate):
    remark = "is not a broker setting; did you mean fileReservedTime?"
    assert validate("\n# keep\nfileReservedTme=48\n") == (1, [(3, "warning", "fileReservedTme", remark)])


def test_every_value_of_the_wrong_kind_is_told(validate):
    code, remarks = validate("listenPort=abc\nautoCreateTopicEnable=maybe\nflushDiskType=SOMETIMES\n")
    assert code == 1
    assert [(line, level, key) for line, level, key, _ in remarks] == [
        (1, "error", "listenPort"),
        (2, "error", "autoCreateTopicEnable"),
        (3, "error", "flushDiskType"),
    ]
    assert remarks[0][3] == "listenPort must be a whole number, not 'abc'"


def test_what_has_no_effect_is_a_note_and_no_failure(validate):
    code, remarks = validate("sendMessageThreadPoolNums=16\nfilterServerNums=1\n")
    assert (code, [level for _, level, _, _ in remarks]) == (0, ["note", "note"])
    assert remarks[0][3] == "has no effect: there are no thread pools; one event loop serves all requests"


def test_of_a_key_that_is_there_twice_the_first_is_told(validate):
    code, remarks = validate("brokerName=a\nbrokerName=b\n")
    assert (code, remarks) == (1, [(1, "warning", "brokerName", "overridden by line 2")])


def test_values_that_do_not_go_together_are_told(validate):
    code, [(line, level, _, remark)] = validate("brokerId=1\nenableControllerMode=true\n")
    assert (code, line, level) == (1, 2, "error")
    assert "enableControllerMode needs controllerAddr" in remark


def test_a_sync_master_that_waits_for_no_slave_is_told_so(validate):
    code, [(_, level, _, remark)] = validate("brokerRole=SYNC_MASTER\ninSyncReplicas=1\n")
    assert (code, level) == (1, "warning")
    assert "waits for no slave" in remark


def test_a_place_that_the_store_does_not_use_is_an_error(validate, tmp_path):
    code, [(line, level, _, remark)] = validate(f"storePathRootDir={tmp_path}\nstorePathIndex=/other/index\n")
    assert (code, line, level) == (1, 2, "error")
    assert remark.startswith("storePathIndex cannot be /other/index")


def test_the_keys_tell_whose_settings_they_are_unless_somebody_does(validate):
    text = "kvConfigPath=/tmp/kv.json\nlistenPort=9876\norderMessageEnable=false\n"
    assert validate(text) == (0, [])
    code, remarks = validate(text, "--for", "broker")
    assert (code, [key for _, _, key, _ in remarks]) == (1, ["kvConfigPath", "orderMessageEnable"])


def test_a_file_that_is_no_properties_file_is_told_with_its_line(validate):
    assert validate("a=b\nc=\\u12\n") == (1, [(2, "error", None, "\\u needs four hexadecimal digits")])


def test_a_file_that_is_not_there_is_bad_usage(tmp_path, capsys):
    assert config.main(["validate", str(tmp_path / "x")]) == 2
    assert capsys.readouterr().err.endswith("x: there is no such file\n")


def test_people_are_told_how_much_is_wrong(tmp_path, capsys):
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=a\n")
    assert config.main(["validate", str(file)]) == 0
    assert "1 settings of a broker: no problems" in capsys.readouterr().out


def test_a_controllers_file_is_known_by_its_keys(validate):
    code, [(line, level, _, remark)] = validate("controllerDLegerPeers=n0-a:1;n1-b:2\nscanInactiveMasterInterval=100\n")
    assert (code, line, level) == (1, 1, "error")
    assert "more than one needs controllerStore=etcd" in remark


def test_a_name_server_with_a_controller_reads_the_settings_of_both(validate):
    keys = "enableControllerInNamesrv=true\nlistenPort=9876\n"
    assert validate(keys + "controllerDLegerPeers=n0-a:1\ncontrollerStorePath=/var/lib/controller\n") == (0, [])
    code, [(_, level, _, remark)] = validate(keys + "controllerDLegerPeers=nowhere\n")
    assert (code, level) == (1, "error")
    assert "is not of the form n0-host:port" in remark
