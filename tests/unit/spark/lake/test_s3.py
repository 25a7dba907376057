"""Tables in a bucket, against a real S3 server on this machine."""

from __future__ import annotations

import json
import threading
from datetime import date
from typing import TYPE_CHECKING, Any

import boto3  # type: ignore[import-untyped]  # it has no types
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from moto.server import ThreadedMotoServer
from pyiceberg.catalog import load_catalog
from tests.ports import free_port
from tests.unit.spark.lake.lake_rows import add, queue

from pyromq.cli.nouns import lake as noun
from pyromq.spark.lake import care, delta, tables
from pyromq.spark.lake.care import Care
from pyromq.spark.lake.storage import Storage
from pyromq.spark.lake.table import LakeConflict, LakeError, TableNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyromq.spark.lake.table import LakeTable

pytestmark = pytest.mark.slow

SECRET = "s3cret-of-the-bucket"
TOMORROW = date(2026, 2, 1)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", free_port(), verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def storage(endpoint: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Storage:
    monkeypatch.setenv("LAKE_ACCESS_KEY", "key-of-the-bucket")
    monkeypatch.setenv("LAKE_SECRET_KEY", SECRET)
    bucket = f"lake-{abs(hash(request.node.name)) % 10**8}"
    client = boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    client.create_bucket(Bucket=bucket)
    return Storage.of(f"s3://{bucket}/mq", {"endpoint": endpoint, "credentials": "env:LAKE"})


def archive(table: LakeTable, start: int, end: int) -> Any:
    return add(table, table.storage, table.name, queue(), start, end, whole=table.whole)


def test_delta_in_a_bucket(storage: Storage, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    orders = tables.open_or_create(storage, "orders", "orders", "main")
    for at in range(0, 8, 2):
        archive(orders, at, at + 2)
    assert orders.snapshot().positions == {queue(): 8}
    assert tables.list_tables(storage) == ["orders"]
    assert orders.location == f"{storage.root}/orders"

    # Two at once: the second must not write over the first one's commit.
    write = delta.DeltaLakeTable._write

    def late(self: Any, *arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(delta.DeltaLakeTable, "_write", write)
        archive(tables.open_table(storage, "orders"), 8, 9)
        return write(self, *arguments, **options)

    monkeypatch.setattr(delta.DeltaLakeTable, "_write", late)
    with pytest.raises(LakeConflict):
        archive(orders, 8, 12)

    assert Care(orders).compact(TOMORROW).files_after == 1
    assert len(orders.files(orders.snapshot())) == 1
    assert orders.snapshot().positions == {queue(): 9}
    found = DeltaTable(f"{storage.root}/orders", storage_options=storage.delta_options()).to_pyarrow_table()
    assert sorted(found["queueOffset"].to_pylist()) == list(range(9))
    # Without delta-rs: the files themselves, through another client.
    paths = [storage.path(f"orders/{file.path}") for file in orders.files(orders.snapshot())]
    assert ds.dataset(paths, filesystem=storage.filesystem()).count_rows() == 9
    assert care.vacuum(orders) == []

    arguments = ["--root", storage.root, "--lake-option", f"endpoint={storage.endpoint}"]
    arguments += ["--lake-option", "credentials=env:LAKE"]
    assert noun.main(["show", "orders", "-o", "json", *arguments]) == 0
    shown = capsys.readouterr().out
    assert json.loads(shown)["messages"] == 9
    assert SECRET not in shown


def test_threads_that_archive_into_a_bucket(storage: Storage) -> None:
    tables.open_or_create(storage, "orders", "orders", "main")

    def run() -> None:
        mine = tables.open_table(storage, "orders")
        while (at := mine.snapshot().positions.get(queue(), 0)) < 8:
            try:
                archive(mine, at, at + 2)
            except LakeConflict:
                continue

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = DeltaTable(f"{storage.root}/orders", storage_options=storage.delta_options()).to_pyarrow_table()
    assert sorted(found["queueOffset"].to_pylist()) == list(range(8))


def test_iceberg_in_a_bucket(storage: Storage, tmp_path: Path) -> None:
    catalog = {"catalog.type": "sql", "catalog.uri": f"sqlite:///{tmp_path}/catalog.db"}
    lake = Storage.of(storage.root, {"endpoint": storage.endpoint, "credentials": "env:LAKE", **catalog})
    orders = tables.open_or_create(lake, "orders", "orders", "main")
    for at in range(0, 6, 2):
        archive(orders, at, at + 2)
    assert Care(orders).compact(TOMORROW).files_after == 1
    assert orders.snapshot().positions == {queue(): 6}
    foreign = load_catalog("lake", **lake.iceberg_properties()).load_table("rocketmq.orders")
    assert sorted(foreign.scan().to_arrow()["queueOffset"].to_pylist()) == list(range(6))
    assert care.vacuum(orders) == []


def test_what_goes_wrong_with_a_bucket_has_no_secrets(storage: Storage, endpoint: str) -> None:
    with pytest.raises(TableNotFound, match="there is no table at s3://"):
        tables.open_table(storage, "orders")
    nowhere = Storage.of("s3://no-such-bucket/mq", {"endpoint": endpoint, "accessKey": "k", "secretKey": SECRET})
    with pytest.raises(LakeError) as caught:
        tables.open_or_create(nowhere, "orders", "orders", "main")
    assert "no-such-bucket" in str(caught.value)
    silent = Storage.of(
        "s3://bucket/mq",
        {
            "endpoint": f"http://127.0.0.1:{free_port()}",
            "accessKey": "k",
            "secretKey": SECRET,
            "max_retries": "0",
            "connect_timeout": "1s",
        },
    )
    with pytest.raises(LakeError) as refused:
        tables.open_table(silent, "orders")
    for error in (caught.value, refused.value):
        assert SECRET not in str(error)
        assert "\n" not in str(error)
