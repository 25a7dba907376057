"""Unsaved changes of a table, and how to roll them back if the file cannot be written."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Unsaved(Generic[T]):
    """Entries changed since the file was written, each with its value in the file, None if it has none.

    A write covers everything noted before it began. What is noted during the write belongs to the next.
    """

    def __init__(self) -> None:
        self._changed: dict[str, T | None] = {}
        self._writing: dict[str, T | None] = {}

    def note(self, name: str, before: T | None) -> None:
        """An entry is about to change from `before`."""
        self._changed.setdefault(name, before)

    def is_new(self, name: str) -> bool:
        """Whether the file does not have this entry yet."""
        if name in self._writing:
            return self._writing[name] is None
        return name in self._changed and self._changed[name] is None

    def begin(self) -> None:
        """The current table is being written."""
        self._writing, self._changed = self._changed, {}

    def written(self) -> None:
        """The write succeeded."""
        self._writing = {}

    def failed(self) -> dict[str, T | None]:
        """The write failed. Returns the entries to restore in the table, None for those to remove.

        An entry that changed again since is left alone: the next write decides about both changes.
        """
        back: dict[str, T | None] = {}
        for name, before in self._writing.items():
            if name in self._changed:
                self._changed[name] = before
            else:
                back[name] = before
        self._writing = {}
        return back
