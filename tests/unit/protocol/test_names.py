from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pyromq
from pyromq.protocol import names
from pyromq.protocol.names import is_system_group, is_system_topic, reply_topic, revive_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(pyromq.__file__).parent
PACKAGES = ("admin", "cli", "client", "namesrv", "spark", "sync")


def shared_names() -> set[str]:
    single = {value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
    return single.union(names.BUILT_IN_GROUPS) - {names.NAME_PATTERN}


def typed_again(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    known = shared_names()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in texts and node.value in known:
            yield f"{path.relative_to(SOURCE)}:{node.lineno} {node.value}"


@pytest.mark.parametrize("package", PACKAGES)
def test_names_that_peers_share_are_typed_nowhere_else(package):
    assert [found for path in sorted((SOURCE / package).rglob("*.py")) for found in typed_again(path)] == []


@pytest.mark.parametrize("topic", ["TBW102", "rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_c", "RMQ_SYS_TRACE_TOPIC"])
def test_topics_of_brokers_are_system_topics(topic):
    assert is_system_topic(topic)


@pytest.mark.parametrize("topic", ["orders", "%RETRY%g", "%DLQ%g", "tbw102", "RMQ_SYS"])
def test_topics_of_users_are_none(topic):
    assert not is_system_topic(topic)


@pytest.mark.parametrize("group", ["TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS", "admin_ext_group", "CID_ONSAPI_PULL"])
def test_groups_of_brokers_and_tools_are_system_groups(group):
    assert is_system_group(group)


@pytest.mark.parametrize("group", ["billing", "CID_billing", "DEFAULT_CONSUMER"])
def test_groups_of_users_are_none(group):
    assert not is_system_group(group)


def test_topics_of_a_cluster_carry_its_name():
    assert reply_topic("c") == "c_REPLY_TOPIC"
    assert revive_topic("c") == "rmq_sys_REVIVE_LOG_c"
