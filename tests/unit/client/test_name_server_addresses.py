from __future__ import annotations

from typing import Any

import pytest

from pyromq.client.client import Client
from pyromq.client.name_server_addresses import NameServerAddresses, configured
from pyromq.errors import ConfigError


@pytest.mark.parametrize("given", ["a:1;b:2", "a:1,b:2", " a:1 ; b:2 ;", ["a:1", "b:2"], ("a:1;b:2", "a:1")])
def test_addresses_come_as_text_or_as_a_list(given):
    assert configured(given, {}) == NameServerAddresses(("a:1", "b:2"))


def test_what_the_user_gives_counts_before_the_environment():
    environ = {"NAMESRV_ADDR": "c:3"}
    assert configured("a:1", environ).addresses == ("a:1",)
    for nothing in (None, ""):
        assert configured(nothing, environ).addresses == ("c:3",)
        assert configured(nothing, {"NAMESRV_ADDR": " "}).addresses == ()


@pytest.mark.parametrize(
    ("given", "addresses", "namespace"),
    [
        ("http://mq.example.com:80", ("mq.example.com:80",), None),
        ("http://MQ_INST_1_ab.mq.example.com:80", ("MQ_INST_1_ab.mq.example.com:80",), "MQ_INST_1_ab"),
        ("MQ_INST_1_ab.mq.example.com:80", ("MQ_INST_1_ab.mq.example.com:80",), "MQ_INST_1_ab"),
        ("http://MQ_INST_only.mq.example.com:80", ("MQ_INST_only.mq.example.com:80",), None),
    ],
)
def test_an_endpoint_may_name_a_namespace(given, addresses, namespace):
    assert configured(given, {}) == NameServerAddresses(addresses, namespace)


def test_the_namespace_of_the_endpoint_counts_unless_the_user_gives_one():
    endpoint = "http://MQ_INST_1_ab.mq.example.com:80"
    assert Client(endpoint).namespace.wrap("orders") == "MQ_INST_1_ab%orders"
    assert Client(endpoint, namespace="mine").namespace.wrap("orders") == "mine%orders"


@pytest.mark.parametrize("given", ["a", "a:b", "a:99999", ":1", "http://a"])
def test_what_is_no_address_is_refused_with_its_source(given):
    with pytest.raises(ConfigError, match=r"namesrv: .*host:port"):
        configured(given, {})
    with pytest.raises(ConfigError, match=r"environment NAMESRV_ADDR: .*host:port"):
        configured(None, {"NAMESRV_ADDR": given})


@pytest.mark.parametrize("name", ["api_timeout", "route_interval", "heartbeat_interval", "offset_interval"])
def test_a_time_that_is_none_is_refused(name):
    settings: dict[str, Any] = {name: 0}
    with pytest.raises(ConfigError, match=name):
        Client("a:1", **settings)
