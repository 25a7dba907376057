"""Users and policies on disk: complete, private, and without a secret that can be read."""

from __future__ import annotations

import json
import logging
import os
import stat

import pytest

from pyromq.auth.users.changes import with_policies, with_user
from pyromq.auth.users.model import Accounts, Decision, PolicyEntry, PolicyType, Resource, User, UserStatus, UserType
from pyromq.auth.users.users_file import UsersFile
from pyromq.auth.users.vault import Vault
from pyromq.errors import ConfigError
from pyromq.protocol.rights import Action

SECRET = "a very long secret, with ünïcode"


def some_accounts():
    accounts = with_user(Accounts(), User("alice", SECRET, UserType.SUPER))
    accounts = with_user(accounts, User("bob", "bob's", UserType.NORMAL, UserStatus.DISABLE))
    entry = PolicyEntry(Resource.parse("Topic:a*"), (Action.PUB, Action.SUB), Decision.ALLOW, ("10.0.0.0/8",))
    other = PolicyEntry(Resource.parse("*"), (Action.ALL,), Decision.DENY)
    return with_policies(accounts, "bob", {PolicyType.CUSTOM: (entry,), PolicyType.DEFAULT: (other,)})


def opened(folder):
    return UsersFile(folder / "users.json", Vault(folder / "users.key"))


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_saved_is_found_again(tmp_path):
    opened(tmp_path).save(some_accounts())
    assert opened(tmp_path).load() == some_accounts()


def test_without_a_file_there_is_nobody_and_nothing_is_written(tmp_path):
    assert opened(tmp_path).load() == Accounts()
    assert list(tmp_path.iterdir()) == []


def test_no_secret_can_be_read_and_nobody_else_may_read_the_rest(tmp_path):
    umask = os.umask(0)
    try:
        file = opened(tmp_path)
        file.save(some_accounts())
        file.save(with_user(some_accounts(), User("carol", "x")))
    finally:
        os.umask(umask)
    for name in ("users.json", "users.json.bak", "users.key"):
        assert mode(tmp_path / name) == 0o600, name
        assert SECRET not in (tmp_path / name).read_text()
    saved = json.loads((tmp_path / "users.json").read_text())
    assert [user["password"].split(":")[0] for user in saved["users"]] == ["aes256gcm"] * 3


def test_secrets_that_did_not_change_are_not_encrypted_again(tmp_path):
    file = opened(tmp_path)
    file.save(some_accounts())
    before = json.loads((tmp_path / "users.json").read_text())["users"]
    file.save(with_user(some_accounts(), User("bob", "another")))
    after = json.loads((tmp_path / "users.json").read_text())["users"]
    assert after[0] == before[0]
    assert after[1]["password"] != before[1]["password"]
    assert opened(tmp_path).load().users["bob"].secret == "another"


def test_a_secret_opens_only_beside_its_user_and_with_its_key(tmp_path):
    vault = Vault(tmp_path / "key")
    sealed = vault.seal("alice", SECRET)
    assert vault.open("alice", sealed) == SECRET
    assert vault.seal("alice", SECRET) != sealed
    for name, text in [("bob", sealed), ("alice", sealed[:-8] + "AAAAAAA="), ("alice", SECRET), ("alice", "")]:
        with pytest.raises(ConfigError, match=f"secret of user {name} does not open") as caught:
            vault.open(name, text)
        assert SECRET not in str(caught.value)
    other = Vault(tmp_path / "other")
    other.seal("alice", "x")
    with pytest.raises(ConfigError, match="does not open"):
        other.open("alice", sealed)


def test_without_the_key_or_with_half_of_it_a_server_does_not_start(tmp_path):
    opened(tmp_path).save(some_accounts())
    key = tmp_path / "users.key"
    text = key.read_text()
    key.write_text(text[:40])
    with pytest.raises(ConfigError, match=r"users\.key is not a key: 64 hexadecimal digits are expected"):
        opened(tmp_path).load()
    key.unlink()
    with pytest.raises(ConfigError, match=r"users\.key, the key to the secrets of users, is missing"):
        opened(tmp_path).load()
    assert not key.exists(), "a new key would make all secrets unreadable for good"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"users":[{"username":"a"}]}',
        '{"users":[{"username":"a","userType":"Super","userStatus":"enable"}]}',
        '{"acls":[{"subject":"Group:a","policies":[]}]}',
        '{"acls":[{"subject":"User:a","policies":[]}]}',
        '{"acls":[{"subject":"User:a","policies":[{"entries":[{"resource":"Topic:a","actions":["Pub"]}]}]}]}',
    ],
)
def test_a_file_that_is_not_understood_is_refused_and_not_replaced_by_an_older_one(text, tmp_path):
    file = opened(tmp_path)
    file.save(some_accounts())
    file.save(with_user(some_accounts(), User("carol", "x")))
    (tmp_path / "users.json").write_text(text)
    with pytest.raises(ConfigError):
        opened(tmp_path).load()


def test_a_file_that_others_can_read_is_told(tmp_path, caplog):
    opened(tmp_path).save(some_accounts())
    (tmp_path / "users.json").chmod(0o644)
    with caplog.at_level(logging.WARNING):
        opened(tmp_path).load()
    assert "can be read by others" in caplog.text
    assert SECRET not in caplog.text


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path):
    file = opened(tmp_path)
    file.save(some_accounts())
    (tmp_path / "users.json.tmp").mkdir()  # stands in its way
    with pytest.raises(OSError, match=r"users\.json\.tmp"):
        file.save(Accounts())
    assert opened(tmp_path).load() == some_accounts()
