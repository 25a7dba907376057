"""Files of pipelines: what they may say, and how errors name the line."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pyromq.errors import ConfigError
from pyromq.spark.pipelines.pipelines_file import name_of, read_pipelines

GOOD = """\
name: orders-lake
cluster: {namesrv: "ns1:9876;ns2:9876", credentials: "env:MQ"}
lake:
  root: "s3://lake/mq"
  format: delta
  options: {aws_secret_access_key: "env:S3_SECRET", endpoint: "http://s3"}
pipelines:
  - archive: {topics: [orders, "pay_.*"], every: 5m, maxLag: 15m}
  - transform: {from: orders, to: orders_vip, sql: "select body, keys from orders", guarantee: effectively-once}
  - audit: {topics: [orders], every: 1h}
  - replay:
      from: "%DLQ%billing"
      since: 2026-01-31T00:00:00Z
      rate: 010
"""


@pytest.fixture
def read(tmp_path):
    def read(text: str, **environ: str):
        path = tmp_path / "orders.yaml"
        path.write_text(text)
        return read_pipelines(path, environ=environ)

    return read


def test_a_file_as_the_documents_show_it(read, tmp_path):
    found = read(GOOD, S3_SECRET="hush")
    assert (found.name, found.connection) == ("orders-lake", {"namesrv": "ns1:9876;ns2:9876", "credentials": "env:MQ"})
    assert (found.lake.root, found.lake.format) == ("s3://lake/mq", "delta")
    assert found.lake.options == {"aws_secret_access_key": "hush", "endpoint": "http://s3"}
    assert found.state == tmp_path / "orders.state"
    archive, transform, audit, replay = found.entries
    assert (archive.kind, archive.line, archive.settings.topics) == ("archive", 8, ("orders", "pay_.*"))
    assert (archive.settings.every, archive.settings.max_lag) == (300, 900)
    assert (transform.settings.from_, transform.settings.guarantee) == ("orders", "effectively-once")
    assert audit.settings.every == 3600
    # As it stands there: YAML would make a date of one, and 8 of the other.
    assert (replay.settings.since, replay.settings.rate) == (datetime(2026, 1, 31, tzinfo=UTC), 10)
    assert [name_of(each.kind, each.settings) for each in found.entries] == [
        "archive-orders-and-more",
        "transform-orders-orders_vip",
        "audit-orders",
        "replay-DLQbilling-origin",
    ]
    assert "hush" not in repr(found)


CLUSTER = "cluster: {namesrv: ns:9876}\n"
HEAD = CLUSTER + "lake: {root: /lake}\npipelines:\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "orders.yaml: the file is empty"),
        ("a: [1", "orders.yaml:1: expected ',' or ']'"),
        ("pipelins: []\n" + HEAD + "  - lag: {}", "orders.yaml:1: unknown key pipelins; did you mean pipelines?"),
        (HEAD + "  - archive: {topics: [a], evrey: 5m}", ":4: archive: unknown key evrey; did you mean every?"),
        (HEAD + "  - archve: {topics: [a]}", ":4: unknown key archve; did you mean archive?"),
        (HEAD + "  - archive:\n      topics: [a]\n      every: 5 parsecs", ":6: archive: every must be a time such as"),
        (HEAD + "  - archive: {}", ":4: archive: topics is missing"),
        (HEAD + "  - archive: {topics: [a], topics: [b]}", ":4: archive: topics is given twice"),
        (HEAD + "  - replay: {from: a, to: b, rate: [1, 2]}", ":4: replay: rate takes one value, not a list"),
        (
            HEAD + "  - replay: {from: a, to: b, since: 1700000000}",
            "since must be in milliseconds, and this looks like seconds; 1700000000000",
        ),
        (HEAD + "  - transform: {from: a, to: b}", ":4: transform: give one of sql, function and frame"),
        (HEAD + "  - transform: {from: a, to: a, sql: x}", "from and to are the same topic"),
        (HEAD + "  - lag: {alarms: [lag > many]}", ":4: lag: alarms must be rules such as"),
        (HEAD + "  - lag: {}\n    audit: {topics: [a]}", ":5: one pipeline in each item"),
        (HEAD + "  - lag: {}\n  - lag: {}", ":5: lag: name lag is taken by line 4"),
        (HEAD, "pipelines must be a list"),
        (CLUSTER, ":1: pipelines is missing"),
        (CLUSTER + "pipelines:\n  - archive: {topics: [a]}", ":3: archive needs a lake"),
        ("pipelines:\n  - lag: {}", ":1: cluster is missing: option namesrv is missing"),
        ("cluster: {namesrv: a:1, secretKey: x}\npipelines: [{lag: {}}]", ":1: secretKey does not belong into a file"),
        ("cluster: {namesrv: a:1, tls: maybe}\npipelines: [{lag: {}}]", ":1: tls must be true or false, not 'maybe'"),
        ("cluster: {namesrv: 'env:NS'}\npipelines: [{lag: {}}]", ":1: namesrv: the environment has no variable NS"),
        (
            CLUSTER + "lake: {root: /l, options: {secret_key: abc}}\npipelines: [{lag: {}}]",
            ":2: secret_key looks like a",
        ),
        (CLUSTER + "lake: {root: /l, format: orc}\npipelines: [{lag: {}}]", ":2: format must be one of delta, iceberg"),
        (CLUSTER + "lake: {}\npipelines: [{lag: {}}]", ":2: lake: root is missing"),
        ("- a", "the file must be a mapping"),
        (CLUSTER + "name: ../x\npipelines: [{lag: {}}]", ":2: name must be letters"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(read, text, said):
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert said in str(caught.value)
    assert "abc" not in str(caught.value)


def test_everything_that_is_wrong_is_said_at_once(read):
    with pytest.raises(ConfigError) as caught:
        read(HEAD + "  - archive: {topics: [a], evrey: 5m}\n  - replay: {from: a}\n  - lag: {every: x}")
    assert [line.split(":")[1] for line in str(caught.value).splitlines()] == ["4", "5", "6"]


def test_a_file_without_a_cluster_takes_that_of_the_command(tmp_path):
    path = tmp_path / "x.yml"
    path.write_text("state: kept\npipelines: [{lag: {}}]")
    found = read_pipelines(path, namesrv="there:9876", environ={})
    assert found.connection == {"namesrv": "there:9876"}
    assert found.state == tmp_path / "kept"
