"""Every declared setting does something, or is declared to have no effect: found by looking who reads it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pyromq
from pyromq.broker.config import CONFIGS as BROKER_CONFIGS
from pyromq.controller.config import CONFIGS as CONTROLLER_CONFIGS
from pyromq.namesrv.config import CONFIGS as NAMESRV_CONFIGS
from pyromq.settings import options_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyromq.settings import Option

SOURCE = Path(pyromq.__file__).parent
CONFIGS = tuple(dict.fromkeys((*BROKER_CONFIGS, *NAMESRV_CONFIGS, *CONTROLLER_CONFIGS)))
DECLARED = [(config, option) for config in CONFIGS for option in options_of(config)]

# What holds settings is called so: `config.x`, `self._config.x`, `live.config.x`, `tls.x`, `settings[StoreConfig].x`.
HOLDER = re.compile(r"(?:^|_)(?:config|tls|\w*Config)$")


def last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(slice=inner) | ast.Call(func=inner):
            return last_name(inner)
    return ""


def names_read() -> set[str]:
    """The attributes of settings that some code reads. What a property of a config reads counts if the property is."""
    read: set[str] = set()
    by_property: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Load)
                and HOLDER.search(last_name(node.value))
            ):
                read.add(node.attr)
            # One loop over all options of a class reads each of them.
            if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and last_name(node.iter) == "options_of":
                read |= {option.name for option in looped_over(node.iter)}
            if isinstance(node, ast.ClassDef) and node.name.endswith("Config"):
                for method in node.body:
                    if isinstance(method, ast.FunctionDef):
                        by_property.setdefault(method.name, set()).update(own_attributes(method))
    while more := set().union(*(by_property.pop(name) for name in read & by_property.keys())) - read:
        read |= more
    return read


def own_attributes(method: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(method):
        if isinstance(node, ast.Attribute) and last_name(node.value) == "self":
            yield node.attr


def looped_over(call: ast.Call) -> tuple[Option, ...]:
    named = {config.__name__: config for config in CONFIGS}
    config = named.get(last_name(call.args[0]))
    return options_of(config) if config is not None else ()


@pytest.fixture(scope="module")
def read() -> set[str]:
    return names_read()


@pytest.mark.slow
def test_every_setting_has_a_reader_or_is_declared_to_have_no_effect(read):
    idle = [option.key for _, option in DECLARED if not option.no_effect and option.name not in read]
    assert idle == []


def test_a_setting_without_effect_has_no_reader(read):
    used = [option.key for _, option in DECLARED if option.no_effect and option.name in read]
    assert used == []


def test_a_setting_without_effect_says_why_in_a_sentence_and_is_not_live():
    for _, option in DECLARED:
        if option.no_effect:
            assert re.fullmatch(r"[A-Z].*\.", option.doc), option.key
            assert not option.hot, option.key


@pytest.mark.parametrize(
    "pattern",
    [
        r"[pP]ath|File$|Checkpoint$|Dir$",  # places
        r"[pP]ort$|bindAddress|brokerIP",
        r"brokerRole|brokerId|brokerName|brokerClusterName|clusterTest",
        r"mappedFileSize|maxHashSlotNum|maxIndexNum",
        r"aclEnable|^tls\.|configBlackList",
        r"flushDiskType|messageDelayLevel",
    ],
)
def test_places_ports_roles_sizes_and_security_are_not_changed_at_run_time(pattern):
    found = [option for _, option in DECLARED if re.search(pattern, option.key)]
    assert found
    assert [option.key for option in found if option.hot] == []
