"""One description of a storage, in the words of three libraries, and never a secret in a text."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest
from pyarrow import fs

from pyromq.errors import ConfigError
from pyromq.spark.lake.storage import Storage

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "s3cr3t-of-the-lake"


def test_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for root in ("lake x", str(tmp_path / "lake x"), f"file://{tmp_path}/lake%20x"):
        storage = Storage.of(root)
        assert storage.path("orders") == f"{tmp_path}/lake x/orders"
        assert storage.uri("orders") == f"file://{tmp_path}/lake%20x/orders"
        assert isinstance(storage.filesystem(), fs.LocalFileSystem)
        assert storage.delta_options() == {}


def test_a_bucket_with_keys() -> None:
    storage = Storage.of(
        "s3://bucket/mq/",
        {"lake.endpoint": "http://127.0.0.1:9", "accessKey": "ak", "secretKey": SECRET, "storage.AWS_X": "path"},
    )
    assert storage.path("orders/x") == "bucket/mq/orders/x"
    assert storage.uri("orders") == "s3://bucket/mq/orders"
    assert storage.delta_options() == {
        "AWS_ACCESS_KEY_ID": "ak",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ALLOW_HTTP": "true",
        "aws_conditional_put": "etag",
        "AWS_X": "path",
    }
    assert storage.iceberg_properties()["s3.secret-access-key"] == SECRET
    assert isinstance(storage.filesystem(), fs.S3FileSystem)
    assert pickle.loads(pickle.dumps(storage)) == storage


def test_keys_that_are_kept_elsewhere_travel_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_ACCESS_KEY", "ak")
    monkeypatch.setenv("LAKE_SECRET_KEY", SECRET)
    storage = Storage.of("s3://bucket/mq", {"credentials": "env:LAKE", "region": "eu-1"})
    assert storage.delta_options()["AWS_SECRET_ACCESS_KEY"] == SECRET
    assert SECRET.encode() not in pickle.dumps(storage)
    (tmp_path / "keys").write_text(f"accessKey=ak\nsecretKey={SECRET}\nsecurityToken=tok\n")
    stored = Storage.of("s3://bucket/mq", {"credentials": f"file:{tmp_path}/keys"})
    assert stored.iceberg_properties()["s3.session-token"] == "tok"


def test_no_text_has_a_secret_in_it() -> None:
    options = {
        "accessKey": "ak",
        "secretKey": SECRET,
        "catalog.uri": "postgresql://me:pass1234@db/x",
        "AZURE_SAS_TOKEN": "sv=1&sig",
    }
    storage = Storage.of("s3://bucket/mq", options)
    assert SECRET not in repr(storage)
    assert "pass1234" not in repr(storage)
    said = storage.masked(f"403:\n \x1b[31m {SECRET}\x1b[0m refused at\n postgresql://me:pass1234@db/x?sv=1&sig")
    assert said == "403: ***** refused at postgresql://me:*****@db/x?*****"
    with pytest.raises(ConfigError) as caught:
        Storage.of(f"s3://ak:{SECRET}@bucket/mq")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("root", "options", "says"),
    [
        ("", {}, "root is missing"),
        ("s3:///x", {}, "names no bucket"),
        ("s3://b/x", {"accessKey": "ak"}, "belong together"),
        ("s3://b/x", {"credentials": "vault:x"}, "env:PREFIX or file:PATH"),
        ("s3://b/x", {"credentials": "env:X", "accessKey": "a", "secretKey": "b"}, "either credentials or"),
        ("s3://b/x", {"endpoint": "minio:9000"}, "must be a URL such as"),
    ],
)
def test_what_cannot_be(root: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Storage.of(root, options)


def test_other_clouds() -> None:
    azure = Storage.of("abfss://box@account.dfs.core.windows.net/mq", {"accessKey": "account", "secretKey": "a2V5"})
    assert azure.path("orders") == "box/mq/orders"
    assert azure.delta_options() == {"azure_storage_account_name": "account", "azure_storage_account_key": "a2V5"}
    assert azure.iceberg_properties()["adls.account-name"] == "account"
    assert Storage.of("gs://bucket/mq").path("orders") == "bucket/mq/orders"
