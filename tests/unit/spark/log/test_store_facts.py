"""What the folder of a store tells: its broker, its topics, and where stores are."""

from __future__ import annotations

import json

import pytest
from tests.unit.spark.log.scans import fill, message, scan

from pyromq.errors import ConfigError, StoreError
from pyromq.spark import options as known
from pyromq.spark.log.plan import plan
from pyromq.spark.log.store_facts import broker_name


@pytest.fixture
def store(tmp_path):
    fill(tmp_path / "broker-b", [message(number) for number in range(10)])
    return tmp_path / "broker-b"


def configure(store, **topics):
    config = store / "config"
    config.mkdir(exist_ok=True)
    table = {
        name: {"topicName": name, "perm": perm, "readQueueNums": queues, "writeQueueNums": queues}
        for name, (perm, queues) in topics.items()
    }
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": table}))


def test_a_broker_is_known_by_the_topic_of_its_name(store):
    assert broker_name(store) is None
    configure(store, TBW102=(7, 8), DefaultCluster=(7, 16), orders=(6, 1), **{"broker-b": (7, 1)})
    assert broker_name(store) == "broker-b"
    configure(store, **{"broker-b": (7, 1), "another": (7, 1)})
    assert broker_name(store) is None  # either could be it
    (store / "brokerIdentity").write_text("DefaultCluster#broker-c#2")
    assert broker_name(store) == "broker-c"
    (store / "config" / "topics.json").write_text("[1]")
    (store / "brokerIdentity").write_text("")
    assert broker_name(store) is None


def test_a_topic_that_the_store_does_not_have_is_an_error(store):
    configure(store, payments=(6, 4), deleted=(6, 4))
    assert len(scan(store, topics="orders")) == 10  # its queues are there
    assert scan(store, topics="payments") == []
    with pytest.raises(StoreError, match=r"has no topic ordrs; did you mean orders\?"):
        scan(store, topics="ordrs")
    with pytest.raises(StoreError, match=r"has no topic xyz; it has deleted, orders, payments"):
        scan(store, topics="xyz")
    assert scan(store, topics="ordrs", via="log") == []
    (store / "config" / "topics.json").unlink()
    assert scan(store, topics="ordrs") == []  # nobody knows


def test_a_folder_above_stores_names_them(store):
    with pytest.raises(StoreError, match=f"is not a store, but there are some below it: {store}$"):
        scan(store.parent)
    with pytest.raises(StoreError, match="is not a store: there is no such folder here"):
        scan(store / "nowhere")
    with pytest.raises(StoreError, match="is not a store: it has no commitlog folder"):
        scan(store / "commitlog")


def test_a_start_beyond_the_end_is_told(store, caplog):
    given = {"path": str(store), "startingPhysicalOffset": "1000000"}
    with pytest.raises(ConfigError, match=r"startingPhysicalOffset 1000000 is beyond the end of the log, \d+"):
        plan(known.parse(known.LogOptions, given))
    assert scan(store, startingTimestamp="2999-01-01") == []
    assert "nothing was stored at 2999-01-01" in caplog.text
