"""Subscription groups: how each consumer group may consume.

The table is memory only; `kept_files` keeps it in subscriptionGroup.json. docs/spec/broker.md 8.3.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyromq.errors import ServerError
from pyromq.protocol.bodies import DataVersion, SubscriptionGroupConfig, SubscriptionGroupWrapper
from pyromq.protocol.names import BUILT_IN_GROUPS, MAX_GROUP_LENGTH, SYSTEM_GROUP_PREFIX, is_legal_name

from .topics import next_version
from .unsaved import Unsaved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .config import LiveConfig

logger = logging.getLogger(__name__)


class GroupTable:
    """All subscription groups by name, with or without consumers. Producer groups are not among them.

    `changed` is called after each change with the group's name, or with None when several changed. Each change sets
    `dirty`; saving the table clears it. Changes that cannot be saved are rolled back.
    """

    def __init__(self, live: LiveConfig, clock: Callable[[], int]) -> None:
        self._live = live
        self._clock = clock
        self._groups = _built_in()
        # From 5.x: which topics a group may not consume. Kept so that the file stays complete.
        self._forbidden: dict[str, dict[str, int]] = {}
        self.data_version = DataVersion(timestamp=clock())
        self.changed: Callable[[str | None], None] | None = None
        self.dirty = False
        self._said_full = False
        self._unsaved: Unsaved[SubscriptionGroupConfig] = Unsaved()

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, group: object) -> bool:
        return group in self._groups

    def __iter__(self) -> Iterator[SubscriptionGroupConfig]:
        """A copy of the groups; the table may change during iteration."""
        return iter(list(self._groups.values()))

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The group, if it exists."""
        return self._groups.get(group)

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """The group, created on first use if that is allowed, else None."""
        known = self._groups.get(group)
        if known is not None or not self._may_create(group):
            return known
        made = SubscriptionGroupConfig(group_name=group)
        self.update(made)
        logger.info("group %s created", group)
        return made

    def _may_create(self, group: str) -> bool:
        if not self._live.config.auto_create_group and not group.startswith(SYSTEM_GROUP_PREFIX):
            return False
        # As 5.x does. Clients check the same; a bad name would stay in our file for good.
        if len(group) > MAX_GROUP_LENGTH or not is_legal_name(group):
            return False
        config = self._live.config
        limit, setting = min((config.max_auto_created_groups, "maxAutoCreatedGroups"), (config.max_groups, "maxGroups"))
        if len(self._groups) < limit:
            self._said_full = False
            return True
        if not self._said_full:
            logger.warning("group %s not created: there are %d or more (%s)", group, limit, setting)
        self._said_full = True
        return False

    def check_room(self, group: str) -> None:
        """ServerError if an operator may not make this group, because there are too many."""
        limit = self._live.config.max_groups
        if group not in self._groups and len(self._groups) >= limit:
            raise ServerError(f"The group[{group}] is not created: there are {limit} groups or more (maxGroups).")

    def update(self, config: SubscriptionGroupConfig) -> None:
        """Create or replace a group."""
        self._unsaved.note(config.group_name, self._groups.get(config.group_name))
        self._groups[config.group_name] = config
        self._moved_on(config.group_name)

    def delete(self, group: str) -> bool:
        """Forget a group. False if there is none."""
        known = self._groups.pop(group, None)
        if known is None:
            return False
        self._unsaved.note(group, known)
        self._forbidden.pop(group, None)
        self._moved_on(group)
        return True

    def _moved_on(self, group: str) -> None:
        self._bump()
        if self.changed is not None:
            self.changed(group)

    def _bump(self) -> None:
        self.data_version = next_version(self.data_version, self._clock())
        self.dirty = True

    # The file, and what peers copy

    def is_new(self, group: str) -> bool:
        """Whether a group is so new that subscriptionGroup.json does not have it yet."""
        return self._unsaved.is_new(group)

    def writing(self) -> None:
        """The current table is being written to the file."""
        self._unsaved.begin()

    def written(self) -> None:
        self._unsaved.written()

    def take_back(self) -> None:
        """The file cannot be written: roll the groups back to what it holds."""
        for name, before in self._unsaved.failed().items():
            if before is None:
                self._groups.pop(name, None)
            else:
                self._groups[name] = before
            logger.warning("group %s rolled back to subscriptionGroup.json", name)
        self._bump()

    def snapshot(self) -> SubscriptionGroupWrapper:
        """A copy of the table that does not change, for another thread."""
        return SubscriptionGroupWrapper(
            data_version=self.data_version,
            forbidden_table=self._forbidden.copy(),
            subscription_group_table=self._groups.copy(),
        )

    def load(self, saved: SubscriptionGroupWrapper) -> None:
        """Load the saved table; it overrides built-in groups."""
        self._groups.update(saved.subscription_group_table)
        self._forbidden = dict(saved.forbidden_table)
        self.data_version = saved.data_version
        self.dirty = False
        if len(self._groups) > len(saved.subscription_group_table):
            self._bump()

    def take_over(self, masters: SubscriptionGroupWrapper) -> bool:
        """Become what the master's table is, version included; built-in groups that it lacks stay.

        False if it is that already.
        """
        if masters.data_version == self.data_version:
            return False
        self._groups = _built_in() | masters.subscription_group_table
        self._forbidden = dict(masters.forbidden_table)
        self._unsaved = Unsaved()
        self.data_version = masters.data_version
        self.dirty = True
        if self.changed is not None:
            self.changed(None)
        return True


def _built_in() -> dict[str, SubscriptionGroupConfig]:
    return {name: SubscriptionGroupConfig(group_name=name) for name in BUILT_IN_GROUPS}
