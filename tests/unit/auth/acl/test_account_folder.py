"""All account files of a server: which are read, how they are followed and changed."""

from __future__ import annotations

import logging
import os
import stat
import threading

import pytest

from pyromq.auth.acl.files import PUB, SUB
from pyromq.auth.acl.folder import AccountChange, AccountFiles
from pyromq.errors import ConfigError, NotSaved

SECRET = "not-for-logs"


def file_of(*names, secret=SECRET, more=""):
    accounts = "".join(f"- accessKey: {name}\n  secretKey: {secret}\n" for name in names)
    return f"accounts:\n{accounts}{more}"


@pytest.fixture
def main(tmp_path):
    path = tmp_path / "conf" / "plain_acl.yml"
    path.parent.mkdir()
    path.write_text(file_of("orders-1"))
    path.chmod(0o600)
    return path


@pytest.fixture
def files(main):
    made = AccountFiles(main, clock=lambda: 1_700_000_000.0)
    made.load()
    return made


def rewrite(path, text):
    """Another content, and surely another time of change."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text)
    os.utime(path, ns=(before + 10**9, before + 10**9))


def looked(files):
    files.look()
    files.look()
    return sorted(files.rules.accounts)


def test_files_below_the_folder_come_first_and_an_account_belongs_to_one(main, caplog):
    rewrite(main.parent / "acl" / "b.yaml", file_of("orders-1", "team-b-1", secret="another-one"))
    rewrite(main.parent / "acl" / "deep" / "a.yml", file_of("team-a-1"))
    rewrite(main.parent / "acl" / "not.txt", "{")
    rewrite(main.parent / "acl" / ".hidden.yml", "{")
    files = AccountFiles(main)
    files.load()
    assert sorted(files.rules.accounts) == ["orders-1", "team-a-1", "team-b-1"]
    assert files.rules.accounts["orders-1"].secret_key == "another-one"
    assert files.rules.origins["orders-1"] == main.parent / "acl" / "b.yaml"
    assert "names the account orders-1 of" in caplog.text


def test_a_start_needs_a_file_that_can_be_used(tmp_path):
    files = AccountFiles(tmp_path / "conf" / "plain_acl.yml")
    with pytest.raises(ConfigError, match=r"aclEnable needs accounts: there is neither .*conf/plain_acl\.yml nor"):
        files.load()
    rewrite(files.main, "accounts: [")
    with pytest.raises(ConfigError, match=r"plain_acl\.yml:\d"):
        files.load()


def test_others_should_not_read_the_file(main, caplog):
    main.chmod(0o644)
    AccountFiles(main).load()
    assert f"{main} holds secrets, but others can read it; chmod 600 changes that" in caplog.text


@pytest.mark.scenario("admin 44")
def test_a_file_that_changed_is_read_once_it_stays_as_it_is(files, main, caplog):
    caplog.set_level(logging.DEBUG)
    rewrite(main, "accounts: [")  # half of it is written
    files.look()
    rewrite(main, file_of("orders-1", "orders-2"))
    files.look()
    assert sorted(files.rules.accounts) == ["orders-1"]
    files.look()
    assert sorted(files.rules.accounts) == ["orders-1", "orders-2"]
    assert files.errors == {}
    assert SECRET not in caplog.text


def test_files_may_come_and_go(files, main):
    more = main.parent / "acl" / "more.yml"
    rewrite(more, file_of("orders-2"))
    assert looked(files) == ["orders-1", "orders-2"]
    more.unlink()
    assert looked(files) == ["orders-1"]


def test_a_main_file_that_is_away_keeps_its_accounts(files, main, caplog):
    main.unlink()
    assert looked(files) == ["orders-1"]
    assert files.errors == {main: f"{main}: is missing"}
    looked(files)
    assert caplog.text.count("is missing; the old accounts stay") == 1
    rewrite(main, "accounts: []")
    assert looked(files) == []
    assert files.errors == {}


@pytest.mark.scenario("admin 45")
def test_a_broken_file_keeps_its_accounts_and_others_change(files, main, caplog):
    rewrite(main.parent / "acl" / "more.yml", file_of("orders-2"))
    rewrite(main, file_of("orders-3") + "- oops\n")
    assert looked(files) == ["orders-1", "orders-2"]
    assert files.errors == {main: f"{main}:4: an account needs accessKey and secretKey"}
    assert "the old accounts stay" in caplog.text
    assert SECRET not in caplog.text
    with pytest.raises(ConfigError, match=r"plain_acl\.yml:4"):
        files.set_account(AccountChange(access_key="orders-4", secret_key=SECRET))
    rewrite(main, file_of("orders-3"))
    assert looked(files) == ["orders-2", "orders-3"]
    assert files.errors == {}


def test_a_file_that_is_too_large_is_not_read(files, main):
    rewrite(main, "#" * (4 * 1024 * 1024 + 1))
    assert looked(files) == ["orders-1"]
    assert files.errors[main].endswith("is larger than 4194304 bytes")


def test_only_files_are_read(files, main):
    folder = main.parent / "acl"
    folder.mkdir()
    os.mkfifo(folder / "pipe.yml")
    (folder / "folder.yml").mkdir()
    (folder / "nowhere.yml").symlink_to("/nowhere")
    assert looked(files) == ["orders-1"]


# Changes


def test_an_account_is_created_changed_and_deleted_on_disk_for_its_owner_alone(files, main):
    main.chmod(0o644)
    files.set_account(AccountChange(access_key="orders-2", secret_key=SECRET, topic_perms=["a=PUB"], admin=False))
    files.set_account(AccountChange(access_key="orders-2", default_topic_perm="SUB", topic_perms=["a=SUB"]))
    for each in (files, AccountFiles(main)):
        each.load()
        account = each.rules.accounts["orders-2"]
        assert (account.secret_key, account.topics, account.default_topic) == (SECRET, {"a": SUB}, SUB)
        assert each.rules.versions[main].counter == 2
        assert each.rules.versions[main].timestamp == 1_700_000_000_000
    for path in (main, main.with_name("plain_acl.yml.bak")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert files.delete_account("orders-2")
    assert not files.delete_account("orders-2")
    assert sorted(AccountFiles(main).rules.accounts) == []
    assert looked(files) == ["orders-1"]


def test_an_account_is_changed_in_the_file_that_it_belongs_to(files, main):
    more = main.parent / "acl" / "more.yml"
    rewrite(more, "mine: 1\n" + file_of("orders-2", "orders-3", secret="00123456"))
    looked(files)
    before = main.read_text()
    files.set_account(AccountChange(access_key="orders-2", group_perms=["g=PUB|SUB"]))
    assert main.read_text() == before
    assert "mine: 1" in more.read_text()
    again = AccountFiles(main)
    again.load()
    assert again.rules.accounts["orders-2"].groups == {"g": PUB | SUB}
    assert [again.rules.accounts[name].secret_key for name in ("orders-2", "orders-3")] == ["00123456", "00123456"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (AccountChange(access_key="short", secret_key=SECRET), "accessKey must be longer than 6 characters"),
        (AccountChange(access_key="orders-2", secret_key="short"), "secretKey must be longer than 6 characters"),
        (AccountChange(access_key="orders-2"), "secretKey is missing"),
        (AccountChange(access_key="orders-1", topic_perms=["a"]), "topicPerms: 'a' is not of the form name=PUB"),
        (AccountChange(access_key="orders-1", default_group_perm="X"), "defaultGroupPerm: 'X' is not one of"),
        (AccountChange(access_key="orders-1", white_remote_address="x"), "whiteRemoteAddress: 'x' is not an address"),
    ],
)
def test_what_no_account_can_be_is_refused_and_changes_nothing(files, main, change, why):
    before = main.read_text()
    with pytest.raises(ConfigError) as caught:
        files.set_account(change)
    assert str(caught.value).startswith(why)
    assert main.read_text() == before
    assert files.rules.accounts["orders-1"].topics == {}


def test_white_addresses_are_set_in_one_of_the_files(files, main):
    files.set_white_addresses(["10.0.0.*", "10.0.1.{1,2}"])
    assert files.rules.white.take("10.0.1.2")
    files.set_white_addresses([])
    assert not files.rules.white.take("10.0.1.2")
    with pytest.raises(ConfigError, match="/etc/passwd is not one of the account files"):
        files.set_white_addresses([], main.parent / ".." / ".." / "/etc/passwd")
    with pytest.raises(ConfigError, match="'x' is not an address"):
        files.set_white_addresses(["x"])


def test_a_change_that_cannot_be_saved_is_none(files, main, monkeypatch):
    def full(*_args, **_more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyromq.auth.acl.folder.replace_file", full)
    with pytest.raises(NotSaved, match="No space left on device"):
        files.set_account(AccountChange(access_key="orders-2", secret_key=SECRET))
    assert sorted(files.rules.accounts) == ["orders-1"]


def test_changes_of_several_servers_with_the_same_file_are_all_kept(files, main):
    others = [AccountFiles(main) for _ in range(4)]
    for each in others:
        each.load()

    def work(number):
        for turn in range(5):
            others[number].set_account(AccountChange(access_key=f"account-{number}-{turn}", secret_key=SECRET))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(looked(files)) == 21
    assert files.rules.versions[main].counter == 20


def test_a_change_by_hand_and_one_by_request_go_together(files, main):
    rewrite(main, file_of("orders-1", "orders-2"))
    files.set_account(AccountChange(access_key="orders-3", secret_key=SECRET))
    assert sorted(files.rules.accounts) == ["orders-1", "orders-2", "orders-3"]
    assert looked(files) == ["orders-1", "orders-2", "orders-3"]
