"""The options of `rocketmq_meta`."""

from __future__ import annotations

from dataclasses import dataclass

from pyromq.errors import ConfigError

from ..option_values import names, opt
from ..options import ConnectionOptions


def table_name(value: str) -> str:
    from .tables import table  # other options work without pyarrow and pyspark

    return table(value).name


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaOptions(ConnectionOptions):
    """Options of `rocketmq_meta`."""

    table: str = opt("table", table_name, "", "Table to read: topics, queues, groups or brokers.")
    topics: tuple[str, ...] = opt(
        "topics",
        names,
        (),
        "Only these topics, separated by commas.",
        aliases=("subscribe", "topic"),
    )
    groups: tuple[str, ...] = opt(
        "groups", names, (), "Only these groups, separated by commas.", aliases=("consumerGroup", "group")
    )

    def check(self) -> None:
        ConnectionOptions.check(self)
        if not self.table:
            raise ConfigError("option table is missing: topics, queues, groups or brokers")
