"""An archive as a program of its own, which can be killed: the whole of it, an executor, or a process of a task.

    python lake_driver.py '{"namesrv": …, "root": …, "topics": […], "master": …, "conf": {…}, "folder": …}'

It goes on until there is a file `stop` in `folder`, where it also notes its progress, a line for each step.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyromq.spark as mq
from pyromq.spark.lake.archive import archive

if TYPE_CHECKING:
    from pyromq.spark.lake.archive import ArchiveProgress


def main(order: dict[str, Any]) -> None:
    folder = Path(order["folder"])
    spark = mq.session(order["namesrv"], master=order["master"], conf=order["conf"])
    with (folder / "progress").open("a") as lines:

        def note(step: ArchiveProgress) -> None:
            lines.write(json.dumps([step.topic, step.rows, step.lag, step.error]) + "\n")
            lines.flush()

        lines.write('["", 0, 0, null]\n')  # it is up
        lines.flush()
        archive(
            spark,
            order["topics"],
            root=order["root"],
            namesrv=order["namesrv"],
            every=0.05,
            max_lag=0.05,
            progress=note,
            stop=(folder / "stop").exists,
            **order.get("options", {}),
        )
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
