"""A project of Spark Declarative Pipelines around a topic, made from a template that its user then changes.

    spark-pipeline.yml              what `spark-pipelines` reads: a name, where state is kept, which files there are
    transformations/TOPIC.py        the topic as a streaming table, and a sink with the flow that fills it
    run                             the command with the settings that such a run needs
    README.md

A run takes what is new and ends. It needs a catalog that outlives it (without one, the second run fails because
the first has made the tables), `--remote` instead of `--master`, and static settings on the command line: in the file
they make the flow fail.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

_TABLE = re.compile(r"[^A-Za-z0-9_]")

_SPEC = """\
# Read by spark-pipelines; ./run starts it. Settings of Spark belong on its command line: here they make flows fail.
name: {name}
storage: {storage}
libraries:
  - glob:
      include: transformations/**
"""

_FLOW = '''\
"""{topic} as a table, and what becomes of it in {to}. Change it as you like; Spark finds every file in this folder.

A definition may neither change settings nor make views: it only says what there is.
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

NAMESRV = os.environ.get("NAMESRV_ADDR", "{namesrv}")
spark = SparkSession.active()


@dp.table(name="{table}", comment="Topic {topic}: each message once, new ones with every run.")
def messages() -> DataFrame:
    return (
        spark.readStream.format("rocketmq")
        .options(namesrv=NAMESRV, subscribe="{topic}", startingOffsets="earliest")
        .load()
    )


# A sink keeps no copy: after --full-refresh everything is sent again.
dp.create_sink("{sink}", "rocketmq", {{"namesrv": NAMESRV, "topic": "{to}", "createTopic": "8"}})


@dp.append_flow(target="{sink}", name="{flow}")
def changed() -> DataFrame:
    # With its msgId a row is known to be a copy: properties that only a broker sets are left out.
    return spark.readStream.table("{table}").select("msgId", "body", "keys", "tags", "properties")
'''

_RUN = """\
#!/bin/sh
# Reads what is new, and ends; `./run dry-run` only checks. Other arguments go to spark-pipelines:
# `./run run --full-refresh-all` begins anew, and sends everything again.
cd "$(dirname "$0")" || exit 1
[ $# -gt 0 ] || set -- run
export PYSPARK_PYTHON="${PYSPARK_PYTHON:-{python}}"
bin="$(dirname "$PYSPARK_PYTHON")"
command="$bin/spark-pipelines"
[ -x "$command" ] || command=spark-pipelines
exec "$command" --remote "${SPARK_REMOTE:-local[2]}" \\
    --conf spark.sql.catalogImplementation=hive \\
    --conf "spark.sql.warehouse.dir=$PWD/tables" \\
    --conf spark.sql.python.filterPushdown.enabled=true \\
    "$@"
"""

_README = """\
# {name}

Topic `{topic}` as the table `{table}`, and a flow from it into topic `{to}`, as a project of Spark Declarative
Pipelines. `pip install 'pyromq[pipelines]'` installs what it needs, besides Java 17.

    ./run              takes what is new, and ends; run it as often as you like
    ./run dry-run      checks the definitions

The folders: `transformations` has the definitions, `tables` the rows, `metastore_db` which tables there are,
and `pipeline-storage` how far each flow has got. Delete the last three, and everything is read and sent again; so does
`./run run --full-refresh-all`. A run always ends: for a pipeline without an end, see `pyromq spark run FILE.yaml`.
"""


@dataclass(frozen=True, slots=True)
class Project:
    """What to call things."""

    topic: str
    to: str
    namesrv: str
    python: str  # to run it with, unless PYSPARK_PYTHON says otherwise

    def files(self, folder: Path) -> dict[str, str]:
        """The text of each file, by its path below `folder`."""
        table = _TABLE.sub("_", self.topic)
        words = {
            "name": folder.name,
            "storage": (folder.absolute() / "pipeline-storage").as_uri(),
            "topic": self.topic,
            "to": self.to,
            "table": table,
            "sink": f"to_{_TABLE.sub('_', self.to)}",
            "flow": f"{table}_to_{_TABLE.sub('_', self.to)}",
            "namesrv": self.namesrv,
        }
        return {
            "spark-pipeline.yml": _SPEC.format(**words),
            f"transformations/{table}.py": _FLOW.format(**words),
            "run": _RUN.replace("{python}", self.python),
            "README.md": _README.format(**words),
            ".gitignore": "/metastore_db/\n/tables/\n/pipeline-storage/\n/derby.log\n",
        }


def init(folder: Path, project: Project) -> list[Path]:
    """Make the project; gives the files. Raises ConfigError if `folder` has anything in it."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is not empty; give a new folder")
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", folder.name):
        raise ConfigError(f"{folder.name!r} cannot name a pipeline; use letters, digits, '.', '_' and '-'")
    made = []
    try:
        for name, text in project.files(folder).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            made.append(path)
        (folder / "run").chmod(0o755)
    except OSError as exc:
        raise ConfigError(f"{folder} cannot be made: {exc.strerror}") from exc
    return made
