"""What the doctor makes of what executors say, and of tasks that say nothing."""

from __future__ import annotations

import pytest

from pyromq import __version__
from pyromq.spark.sessions.diagnosis import MODULES, Diagnosis, Place
from pyromq.spark.sessions.executors import why

GOOD: dict[str, str | None] = {"pyromq": __version__, "pyarrow": "26.0.1", "numpy": "2.4.6", "msgspec": "0.22.0"}


def place(modules: dict[str, str | None], **unreachable: str) -> Place:
    return Place("executor", "node-1", "/work/1", "/usr/bin/python3", "3.11.7", GOOD | modules, dict(unreachable))


@pytest.mark.parametrize(
    ("modules", "problem"),
    [
        ({"pyromq": None}, "executor on node-1: /usr/bin/python3 has no module 'pyromq'"),
        ({"pyarrow": "9.0.0"}, "executor on node-1: pyarrow 9.0.0 is too old, it must be 18 or newer"),
        ({"numpy": "1.26.4"}, "executor on node-1: numpy 1.26.4 is too old, it must be 2 or newer"),
        ({"pyromq": "0.0.1"}, f"executor on node-1: pyromq 0.0.1 is there, but {__version__} is here"),
    ],
)
def test_what_a_place_lacks_is_a_problem(modules, problem):
    assert [*place(modules).problems()] == [problem]


def test_a_place_that_has_everything_has_no_problem():
    assert [*place({}).problems()] == []
    assert {*GOOD} <= {*MODULES}


def test_a_broker_that_cannot_be_reached_is_a_problem():
    unreachable = {"10.0.0.7:10911": "timed out"}
    found = Place("executor", "node-1", "", "python3", "3.11.7", GOOD, unreachable)
    assert [*found.problems()] == ["executor on node-1: broker 10.0.0.7:10911 cannot be reached: timed out"]


def test_a_diagnosis_reads_as_a_page():
    well = Diagnosis("4.3.0", "local[2]", (place({}),), ("10.0.0.7:10911",), ())
    assert str(well).splitlines() == [
        "Spark 4.3.0, local[2]",
        str(place({})),
        "1 broker: 10.0.0.7:10911",
        "all is well",
    ]
    ill = Diagnosis("4.3.0", "local[2]", (), (), ("a", "b"))
    assert str(ill).splitlines()[1:] == ["0 brokers: -", "problem: a", "problem: b"]
    assert (well.is_well, ill.is_well) == (True, False)


def test_of_failed_tasks_the_host_and_the_last_words_are_kept():
    head = (
        "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
        ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most "
        "recent failure: Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.5 executor 1): "
    )
    java = 'java.io.IOException: Cannot run program "python3": error=2, No such file or directory\n\tat java.base/x\n'
    assert why(head + java) == f"tasks fail on 10.0.0.5 executor 1: {java.splitlines()[0]}"
    python = (
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "worker.py", line 3, in main\n    check_python_version(infile)\n'
        "pyspark.errors.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12\n"
        "\n\tat org.apache.spark.api.python.BasePythonRunner\n"
    )
    assert why(head + python).endswith("[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12")
    assert why("") == "tasks fail on an executor: "
