"""Every limit is met by a test, and every setting that can change at run time is meant to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyromq.broker.config import CONFIGS as BROKER_CONFIGS
from pyromq.controller.config import CONFIGS as CONTROLLER_CONFIGS
from pyromq.namesrv.config import CONFIGS as NAMESRV_CONFIGS
from pyromq.settings import options_of

TESTS = Path(__file__).resolve().parent.parent
MARK = re.compile(r"""^@pytest\.mark\.limit\("([^"]+)"\)$""", re.MULTILINE)
ALL = {
    option.key: option
    for configs in (BROKER_CONFIGS, NAMESRV_CONFIGS, CONTROLLER_CONFIGS)
    for config in configs
    for option in options_of(config)
}
LIMITS = {key for key, option in ALL.items() if option.limit} | {"com.rocketmq.remoting.frameMaxLength"}
# Never by a request: where files are, what a server is and whom it believes. One of these being live was the hole of
# CVE-2023-33246 and CVE-2023-37582.
NEVER = re.compile(
    "path|dir$|home|file|password|secret|credential|^acl|auth|cert|tls|listen|bind|port$|cidr|blacklist", re.IGNORECASE
)
# About none of that, in spite of the name.
HARMLESS = {"fileReservedTime", "cleanFileForciblyEnable"}


def test_every_limit_is_met_by_a_test_that_says_so():
    met = {key for path in TESTS.rglob("test_*.py") for key in MARK.findall(path.read_text())}
    assert met - LIMITS == set()
    assert LIMITS - met == set()


def test_a_limit_says_what_happens_beyond_it_and_has_a_least_value():
    for key in LIMITS:
        assert ALL[key].kind is int, key
        assert ALL[key].min is not None, key


def test_a_request_never_changes_where_files_are_or_whom_a_server_believes():
    assert [key for key, option in ALL.items() if option.hot and NEVER.search(key) and key not in HARMLESS] == []


@pytest.mark.parametrize("configs", [BROKER_CONFIGS, NAMESRV_CONFIGS, CONTROLLER_CONFIGS])
def test_no_live_setting_has_the_type_or_the_words_of_a_path(configs):
    live = [option for config in configs for option in options_of(config) if option.hot]
    assert live
    for option in live:
        assert not option.secret, option.key
        assert not re.search(r"\b(folder|directory|path)\b", option.doc, re.IGNORECASE) or option.kind is int, (
            option.key
        )
