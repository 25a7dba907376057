"""The settings of users: what cannot work is refused at the start, and secrets are not repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyromq.auth import Anyone
from pyromq.auth.assembly import AccessControl, Server
from pyromq.auth.users import UserAuthority
from pyromq.auth.users.changes import with_changed_user
from pyromq.broker.config import check_settings, load_settings
from pyromq.broker.requests import RULES
from pyromq.controller.config import load_settings as controller_settings
from pyromq.errors import ConfigError
from pyromq.namesrv.config import load_settings as namesrv_settings
from pyromq.protocol.bodies import UserInfo

INIT = 'initAuthenticationUser={"username":"root","password":"not-for-logs"}'
INNER = 'innerClientAuthenticationCredentials={"accessKey":"replica","secretKey":"not-for-logs-either"}'


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["authorizationEnabled=true"], "authorizationEnabled needs authenticationEnabled"),
        (["authenticationEnabled=true", "aclEnable=true"], "exclude each other; migrateAuthFromV1Enabled makes users"),
        (["authenticationStrategy=org.example.Mine"], "authenticationStrategy must end in"),
        (["initAuthenticationUser=root:not-for-logs"], "initAuthenticationUser must be"),
        (['initAuthenticationUser={"username":" ","password":"not-for-logs"}'], "initAuthenticationUser must be"),
        (['initAuthenticationUser={"username":"not-for-logs"}'], "initAuthenticationUser must be"),
    ],
)
def test_what_cannot_work_is_refused(given, text):
    with pytest.raises(ConfigError, match=text) as caught:
        check_settings(load_settings(sets=given))
    assert "not-for-logs" not in str(caught.value)


def test_without_authentication_everybody_may_do_everything():
    assert isinstance(AccessControl(load_settings(sets=[INIT]), Server(rules=RULES, home=Path())).authority, Anyone)


def made(settings, home=None, asks=""):
    home = home or Path(settings.value("storePathRootDir") or "")
    access = AccessControl(settings, Server(rules=RULES, home=home, asks=asks))
    assert isinstance(access.authority, UserAuthority)
    access.load()
    return access.authority


def test_a_broker_begins_with_the_users_of_its_settings_and_keeps_what_became_of_them(tmp_path):
    settings = load_settings(sets=["authenticationEnabled=true", f"storePathRootDir={tmp_path}", INIT, INNER])
    users = made(settings).directory.accounts.users
    assert {name: (user.secret, user.is_super) for name, user in users.items()} == {
        "root": ("not-for-logs", True),
        "replica": ("not-for-logs-either", True),
    }
    assert (tmp_path / "config" / "users.json").exists()
    later = [INIT.replace("not-for-logs", "another"), INNER]
    settings = load_settings(sets=["authenticationEnabled=true", f"storePathRootDir={tmp_path}", *later])
    assert made(settings).directory.accounts.users == users


def test_the_key_can_be_elsewhere(tmp_path):
    sets = ["authenticationEnabled=true", f"storePathRootDir={tmp_path}", INIT, f"authKeyFile={tmp_path}/safe/key"]
    users = made(load_settings(sets=sets)).directory.accounts.users
    assert (tmp_path / "safe" / "key").exists()
    assert not (tmp_path / "config" / "users.key").exists()
    assert made(load_settings(sets=sets)).directory.accounts.users == users


@pytest.mark.parametrize("load", [namesrv_settings, controller_settings])
async def test_other_servers_read_a_brokers_users_and_write_nothing(load, tmp_path):
    broker = made(load_settings(sets=["authenticationEnabled=true", f"storePathRootDir={tmp_path}", INIT]))
    before = (tmp_path / "config" / "users.json").read_bytes()
    other = made(load(sets=["authenticationEnabled=true", f"authConfigPath={tmp_path}/config", INNER]))
    assert list(other.directory.accounts.users) == ["root", "replica"]
    assert (tmp_path / "config" / "users.json").read_bytes() == before
    await broker.directory.change(lambda accounts: type(accounts)())
    await other.directory.look()
    assert list(other.directory.accounts.users) == ["replica"]


def test_a_server_that_could_not_sign_for_others_does_not_start(tmp_path):
    on = ["authenticationEnabled=true", f"storePathRootDir={tmp_path}"]
    with pytest.raises(ConfigError, match="needs innerClientAuthenticationCredentials: its master would refuse"):
        made(load_settings(sets=on), asks="its master")
    users = made(load_settings(sets=[*on, INNER]), asks="its master").directory.accounts.users
    assert list(users) == ["replica"]
    other = INNER.replace("not-for-logs-either", "not-for-logs")
    with pytest.raises(ConfigError, match="user replica has another secret") as caught:
        made(load_settings(sets=[*on, other]))
    assert "not-for-logs" not in str(caught.value)


async def test_the_account_of_servers_is_a_super_user(tmp_path):
    on = ["authenticationEnabled=true", f"storePathRootDir={tmp_path}", INNER]
    info = UserInfo(username="replica", user_type="Normal")
    await made(load_settings(sets=on)).directory.change(lambda known: with_changed_user(known, info))
    with pytest.raises(ConfigError, match="replica must be a super user"):
        made(load_settings(sets=on))


ACCOUNTS = """
globalWhiteRemoteAddresses:
  - 10.10.103.*
accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress: 192.168.0.*
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms: [topicA=DENY, topicB=PUB|SUB, topicC=SUB]
    groupPerms: [groupA=DENY, groupB=PUB|SUB]
  - accessKey: administrator
    secretKey: 87654321
    admin: true
"""


def test_accounts_of_4_x_become_users_once(tmp_path, monkeypatch, caplog):
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    on = ["authenticationEnabled=true", "migrateAuthFromV1Enabled=true", f"storePathRootDir={tmp_path}"]
    found = made(load_settings(sets=on)).directory.accounts
    assert {name: (user.secret, user.type.value) for name, user in found.users.items()} == {
        "RocketMQ": ("12345678", "Normal"),
        "administrator": ("87654321", "Super"),
    }
    assert {
        (kind.value, str(entry.resource), ",".join(entry.actions), entry.decision.value)
        for kind, entries in found.policies["RocketMQ"].items()
        for entry in entries
    } == {
        ("Custom", "Topic:topicA", "All", "Deny"),
        ("Custom", "Topic:topicB", "Pub,Sub", "Allow"),
        ("Custom", "Topic:topicC", "Sub", "Allow"),
        ("Custom", "Group:groupA", "All", "Deny"),
        ("Custom", "Group:groupB", "Pub,Sub", "Allow"),
        ("Default", "Topic:*", "All", "Deny"),
        ("Default", "Group:*", "Sub", "Allow"),
    }
    assert "whiteRemoteAddress is not migrated" in caplog.text
    assert "12345678" not in caplog.text
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS.replace("12345678", "new-secret"))
    assert made(load_settings(sets=on)).directory.accounts == found


def test_without_accounts_there_is_nothing_to_migrate(tmp_path, monkeypatch):
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    on = ["authenticationEnabled=true", "migrateAuthFromV1Enabled=true", f"storePathRootDir={tmp_path}", INIT]
    assert list(made(load_settings(sets=on)).directory.accounts.users) == ["root"]
