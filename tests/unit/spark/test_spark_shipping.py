"""What Spark sends to executors arrives, and where it cannot be opened the missing module is named."""

from __future__ import annotations

import sys
import zipfile
from types import ModuleType

import pytest
from pyspark import cloudpickle

from pyromq.spark import options as known
from pyromq.spark.schema import ARROW_SCHEMA
from pyromq.spark.shipping import Shipped, package_zip
from pyromq.spark.source.source import RocketMQDataSource, RocketMQReader
from pyromq.spark.source.stream_reader import RocketMQStreamReader


@pytest.fixture
def options():
    return known.parse(known.SourceOptions, {"namesrv": "127.0.0.1:1", "subscribePattern": "a.*"})


@pytest.mark.parametrize("kind", [RocketMQReader, RocketMQStreamReader])
def test_a_reader_arrives_as_it_was(options, kind):
    arrived = cloudpickle.loads(cloudpickle.dumps(kind(options, ARROW_SCHEMA)))
    assert type(arrived) is kind
    assert (arrived._options, arrived._schema) == (options, ARROW_SCHEMA)


def test_a_data_source_goes_along_and_arrives_as_it_was():
    arrived = cloudpickle.loads(cloudpickle.dumps(RocketMQDataSource({"namesrv": "127.0.0.1:1"})))
    assert type(arrived) is RocketMQDataSource
    assert arrived.options == {"namesrv": "127.0.0.1:1"}


def test_a_reader_arrives_with_the_filters_that_it_took(options):
    from pyspark.sql.datasource import EqualTo

    reader = RocketMQReader(options, ARROW_SCHEMA)
    assert list(reader.pushFilters([EqualTo(("queueId",), 1)])) == []
    arrived = cloudpickle.loads(cloudpickle.dumps(reader))
    assert arrived._pushed == reader._pushed
    assert arrived._pushed is not None


def test_where_a_module_is_missing_it_is_named_with_the_python_that_lacks_it(monkeypatch):
    module = ModuleType("absent_module")
    exec("from pyromq.spark.shipping import Shipped\nclass Reader(Shipped):\n    pass", module.__dict__)
    monkeypatch.setitem(sys.modules, "absent_module", module)
    # By name, as the classes of an installed package are.
    assert issubclass(module.Reader, Shipped)
    sent = cloudpickle.dumps(module.Reader())
    monkeypatch.delitem(sys.modules, "absent_module")
    with pytest.raises(RuntimeError, match="has no module 'absent_module', which PyroMQ needs there") as caught:
        cloudpickle.loads(sent)
    assert sys.executable in str(caught.value)
    assert caught.value.__cause__ is None


def test_the_package_fits_in_a_zip(tmp_path):
    path = package_zip(tmp_path)
    names = zipfile.ZipFile(path).namelist()
    assert {
        "pyromq/__init__.py",
        "pyromq/spark/source/source.py",
        "pyspark_rocketmq.py",
        "pyspark_rocketmq_meta.py",
    } <= {*names}
    assert path.stat().st_size < 3 << 20
