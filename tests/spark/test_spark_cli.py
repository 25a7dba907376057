"""`pyromq spark`: what it prints, and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.spark.messages import Topics, topics_in

from pyromq.cli.main import NOUNS
from pyromq.cli.nouns.spark import main
from pyromq.testing.cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

LOCAL = ["--master", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"]


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with running_cluster() as cluster, topics_in(cluster) as made:
        yield made


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Spark makes a folder for its tables where it is started."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(topics, capfd, tmp_path):
    """Run the command with a file of this text; gives the exit code and what was printed on both sides."""

    def run(command: str, name: str, text: str, *arguments: str, options: tuple[str, ...] = ()) -> tuple[int, str, str]:
        (tmp_path / name).write_text(text)
        code = main([command, "--namesrv", topics.cluster.namesrv, *LOCAL, *options, name, *arguments])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run


def outside(*arguments: str, text: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    program = "import sys; from pyromq.cli.nouns.spark import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        input=text,
        capture_output=True,
        text=True,
        env={**os.environ, **environ},
        timeout=200,
        check=False,
    )


def test_it_is_one_of_the_commands():
    assert NOUNS["spark"].module == "pyromq.cli.nouns.spark"


def test_a_file_of_sql_is_printed_as_tables(run, topics):
    topic = topics.new(1)
    topics.send(topic, [b"%d" % number for number in range(6)], tags=lambda number: "AB"[number % 2])
    text = f"""
    -- a comment; no statement
    CREATE TEMPORARY VIEW chosen AS SELECT * FROM `{topic}` WHERE tags = :tag;
    SELECT tags, count(*) AS messages FROM chosen GROUP BY tags;
    SELECT queueOffset FROM chosen ORDER BY queueOffset
    """
    code, out, _ = run("run", "report.sql", text.replace("= :tag", "= 'A'"), options=("--rows", "2"))
    assert code == 0
    assert "|tags|messages|\n+----+--------+\n|A   |3       |" in out
    assert "only showing top 2 rows" in out
    code, out, _ = run("run", "asked.sql", f"SELECT count(*) FROM `{topic}` WHERE tags = :tag", "tag=B")
    assert (code, "|3       |" in out) == (0, True)


def test_a_statement_that_fails_is_named_by_its_line(run, topics):
    topic = topics.new(1)
    code, out, err = run("run", "wrong.sql", f"SELECT 1 AS one;\n\nSELECT nothing FROM `{topic}`;\nSELECT 2 AS two")
    assert code == 1
    assert "|one|" in out
    assert "two" not in out
    [line] = [line for line in err.splitlines() if line.startswith("pyromq spark: ")]
    assert line.startswith("pyromq spark: line 3: [UNRESOLVED_COLUMN")


def test_a_program_finds_its_session_and_its_queries_are_told_and_waited_for(run, topics, tmp_path):
    topic = topics.new(1)
    topics.send(topic, [b"%d" % number for number in range(5)])
    text = f"""
import sys
from pyspark.sql import SparkSession
print(__name__, sys.argv, SparkSession.builder.getOrCreate() is spark)
stream = mq.stream(spark, "{topic}", startingOffsets="earliest", maxOffsetsPerTrigger=3)
writer = stream.writeStream.format("noop").queryName("copy").trigger(availableNow=True)
writer.option("checkpointLocation", sys.argv[1]).start()
"""
    folder = str(tmp_path / "checkpoint")  # a JVM that was started elsewhere knows of no other working directory
    code, out, err = run("run", "copy.py", text, folder, "--flag")
    assert code == 0
    assert f"__main__ ['copy.py', '{folder}', '--flag'] True" in out
    told = [line[line.index("copy: ") :] for line in err.splitlines() if "copy: batch" in line]
    assert [line.split(",")[0] for line in told] == ["copy: batch 0", "copy: batch 1"]
    assert told[0].startswith("copy: batch 0, 3 rows, ")
    assert told[0].endswith(" rows/s, lag 2")
    assert told[1].endswith(" rows/s, lag 0")


def test_a_program_that_fails_is_shown_as_python_shows_it(run):
    code, _, err = run("run", "wrong.py", "def divide(x):\n    return 1 / x\n\ndivide(0)\n")
    assert code == 1
    assert err[err.index("Traceback") :].splitlines()[1] == '  File "wrong.py", line 4, in <module>'
    assert err.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert run("run", "leaves.py", "import sys\nsys.exit(7)\n")[0] == 7


WRONG = {
    "no-such: no broker has this topic, says name server {namesrv}": "mq.read(spark, 'no-such').count()",
    "option startingTimestamp must be in milliseconds, and this looks like seconds; 1769846400000 is 2026-01-31T08": (
        "mq.read(spark, '{topic}', startingTimestamp=1769846400).count()"
    ),
    "row 0 of the task, without keys to {topic}: its body is null; onBadRow=skip": (
        "spark.sql('SELECT CAST(NULL AS BINARY) AS body').write.format('rocketmq').mode('append')"
        ".options(namesrv=namesrv, topic='{topic}').save()"
    ),
    "endingOffsets is for batch reads: a stream has no end": (
        "mq.stream(spark, '{topic}', endingOffsets='latest').writeStream.format('noop').start().awaitTermination()"
    ),
}


@pytest.mark.parametrize("said", WRONG, ids=["topic", "option", "row", "stream"])
def test_what_a_program_did_wrong_is_said_in_one_sentence(run, topics, said):
    topic = topics.new(1)
    code, _, err = run("run", "wrong.py", f"\n{WRONG[said].format(topic=topic)}\n")
    lines = [line for line in err.replace("\r", "\n").splitlines() if line.strip() and not _is_noise(line)]
    assert code == 1
    assert lines[0].startswith(f"pyromq spark: {said.format(topic=topic, namesrv=topics.cluster.namesrv)}")
    assert lines[0].endswith(" (wrong.py, line 2)")
    assert "Traceback" not in err


def _is_noise(line: str) -> bool:
    return (
        "incubator" in line or line.lstrip().startswith("[Stage") or "MicroBatchExecution" in line or "started" in line
    )


def test_a_prompt_says_what_to_type_and_has_topics_as_views(topics):
    topic = topics.new(1)
    topics.send(topic, [b"x"] * 7)
    typed = (
        f'spark.sql("SELECT 100 + count(*) AS many FROM `{topic}`").show()\nmq.describe(spark, "no-such")\nnamesrv\n'
    )
    done = outside("shell", "--namesrv", topics.cluster.namesrv, *LOCAL, text=typed)
    assert done.returncode == 0, done.stderr
    assert "| 107|" in done.stdout
    assert repr(topics.cluster.namesrv) in done.stdout
    banner = done.stderr[done.stderr.index("PyroMQ ") :].splitlines()[:3]
    assert f"of {topics.cluster.namesrv} are views: " in banner[0]
    assert banner[1].startswith('  sql("SELECT ')
    assert "RouteNotFound: no-such: no broker has this topic\n" in done.stderr
    assert "Traceback" not in done.stderr
    noise = done.stderr[: done.stderr.index("PyroMQ ")].splitlines()
    assert [line for line in noise if "incubator" not in line] == []


def test_a_prompt_shows_the_first_of_many_rows_without_noise(topics):
    topic = topics.new(1)
    topics.send(topic, [bytes(1 << 20)] * 40)  # more than sockets hold
    typed = f'sql("SELECT queueOffset, body FROM `{topic}`").show(1)\nsql("SELECT * FROM `{topic}` LIMIT 1").count()\n'
    done = outside("shell", "--namesrv", topics.cluster.namesrv, *LOCAL, text=typed)
    assert "only showing top 1 row" in done.stdout
    assert "Traceback" not in done.stderr
    assert "BrokenPipeError" not in done.stderr


def test_the_doctor_prints_what_it_finds_and_exits_by_it(topics, capfd):
    assert main(["doctor", "--namesrv", topics.cluster.namesrv, *LOCAL]) == 0
    assert capfd.readouterr().out.endswith("all is well\n")
    assert main(["doctor", "--namesrv", "127.0.0.1:1", *LOCAL]) == 1
    assert "problem: cannot find the brokers" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "no-such.py"], "'no-such.py' does not exist"),
        (["run", "data.csv"], "data.csv is neither FILE.py nor FILE.sql"),
        (["run", "data.sql", "3"], "an SQL file takes arguments as name=value, for its :name parameters, not '3'"),
        (["shell", "--conf", "spark.ui.enabled"], "--conf must be KEY=VALUE, not 'spark.ui.enabled'"),
        (["shell", "--master", "local", "--remote", "sc://x"], "use either --master or --remote"),
        (["shel"], "No such command 'shel'"),
    ],
)
def test_a_command_line_that_makes_no_sense_starts_no_spark(capfd, tmp_path: Path, arguments, said):
    (tmp_path / "data.csv").touch()
    (tmp_path / "data.sql").touch()
    assert main(arguments) == 1
    assert said in " ".join(capfd.readouterr().err.split())


def test_the_command_is_there_without_spark():
    program = "import sys, pyromq.cli.nouns.spark; print({'pyspark', 'pyarrow', 'numpy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"set()\n"


def test_without_java_or_spark_one_sentence_says_what_to_do(capfd, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert main(["doctor"]) == 1
    [line] = capfd.readouterr().err.splitlines()
    assert line == "pyromq spark: Spark needs Java 17 or newer, and there is none in JAVA_HOME (/nowhere)"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["shell"]) == 1
    [line] = capfd.readouterr().err.splitlines()
    assert line == "pyromq spark: pyspark is not installed; pip install 'pyromq[spark]' installs it"
