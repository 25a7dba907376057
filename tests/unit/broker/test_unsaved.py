"""What a table takes back when its file cannot be written."""

from __future__ import annotations

import pytest

from pyromq.broker.unsaved import Unsaved


@pytest.fixture
def unsaved():
    return Unsaved[str]()


def test_an_entry_is_new_until_it_was_written(unsaved):
    assert not unsaved.is_new("a")
    unsaved.note("a", None)
    assert unsaved.is_new("a")
    unsaved.begin()
    assert unsaved.is_new("a")
    unsaved.written()
    assert not unsaved.is_new("a")


def test_an_entry_that_the_file_has_is_not_new(unsaved):
    unsaved.note("a", "red")
    assert not unsaved.is_new("a")


def test_a_failed_write_puts_back_what_the_file_has(unsaved):
    unsaved.note("a", None)
    unsaved.note("b", "red")
    unsaved.note("b", "green")  # on the way from red to blue
    unsaved.begin()
    assert unsaved.failed() == {"a": None, "b": "red"}
    assert not unsaved.is_new("a")


def test_what_changed_again_waits_for_the_next_write_which_decides_about_both_changes(unsaved):
    unsaved.note("a", None)
    unsaved.begin()
    unsaved.note("a", "red")
    assert unsaved.failed() == {}
    assert unsaved.is_new("a")
    unsaved.begin()
    assert unsaved.failed() == {"a": None}


def test_changes_during_a_write_that_succeeds_go_back_to_what_it_wrote(unsaved):
    unsaved.note("a", None)
    unsaved.begin()
    unsaved.note("a", "red")
    unsaved.written()
    assert not unsaved.is_new("a")
    unsaved.begin()
    assert unsaved.failed() == {"a": "red"}
