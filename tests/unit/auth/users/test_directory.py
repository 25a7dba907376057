"""The directory of users: changes are complete or did not happen, whoever waits for them."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.unit.auth.users.users_kit import accounts, directory

from pyromq.auth.users.changes import with_user, without_user
from pyromq.auth.users.directory import UserDirectory
from pyromq.auth.users.model import User
from pyromq.auth.users.users_file import UsersFile
from pyromq.auth.users.vault import Vault
from pyromq.errors import NotSaved


def loaded(folder):
    directory(folder)  # writes the file
    return loaded_from(folder)


def loaded_from(folder):
    found = UserDirectory(UsersFile(folder / "users.json", Vault(folder / "users.key")))
    found.load()
    return found


async def test_who_is_cancelled_only_stops_waiting(tmp_path):
    users = loaded(tmp_path)
    changing = asyncio.create_task(users.change(lambda known: with_user(known, User("carol", "x"))))
    await asyncio.sleep(0)
    changing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await changing
    await users.change(lambda known: without_user(known, "bob"))
    await users.close()
    assert "carol" in users.accounts.users
    assert "bob" not in users.accounts.users
    again = loaded_from(tmp_path)
    assert again.accounts == users.accounts


async def test_what_cannot_be_written_did_not_happen_and_nobody_is_told(tmp_path):
    users = loaded(tmp_path)
    told = []
    users.changed = lambda: told.append(len(users.accounts.users))
    (tmp_path / "users.json.tmp").mkdir()
    with pytest.raises(NotSaved, match="nothing was changed"):
        await users.change(lambda known: without_user(known, "bob"))
    assert (users.accounts, told) == (accounts(), [])
    (tmp_path / "users.json.tmp").rmdir()
    await users.change(lambda known: without_user(known, "bob"))
    assert told == [3]


async def test_a_change_to_what_is_there_already_writes_nothing(tmp_path):
    users = loaded(tmp_path)
    before = (tmp_path / "users.json").stat()
    await users.change(lambda known: with_user(known, known.users["bob"]))
    assert not await users.take_over(accounts())
    assert (tmp_path / "users.json").stat().st_ino == before.st_ino


async def test_a_file_that_somebody_else_changed_is_read_again(tmp_path, caplog):
    users, other = loaded(tmp_path), loaded_from(tmp_path)
    await other.change(lambda known: without_user(known, "bob"))
    await users.look()
    assert "bob" not in users.accounts.users
    (tmp_path / "users.json").write_text("{")
    with caplog.at_level(logging.ERROR):
        await users.look()
        await users.look()
    assert "alice" in users.accounts.users
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert [text.split(";")[-1] for text in said] == [" users and policies stay as they were"]
    await users.change(lambda known: without_user(known, "alice"))
    assert loaded_from(tmp_path).accounts == users.accounts
