"""How far Spark is with a job whose rows nobody counts: as far as its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from ..sessions.connect import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TasksDone:
    """Marks the jobs of this thread while it is entered, and estimates their rows by the tasks that ended."""

    def __init__(self, spark: SparkSession, group: str, total: int) -> None:
        self._context = None if is_connect(spark) else spark.sparkContext
        self._group = group
        self._total = total

    def __enter__(self) -> Self:
        if self._context is not None:
            self._context.setJobGroup(self._group, self._group)
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._context is not None:
            self._context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # None clears it

    def rows(self) -> int:
        """About how many of all rows are done. Any thread may ask."""
        if self._context is None:
            return 0
        tracker = self._context.statusTracker()
        done = tasks = 0
        for job in tracker.getJobIdsForGroup(self._group):
            info = tracker.getJobInfo(job)
            for stage in () if info is None else info.stageIds:
                if (about := tracker.getStageInfo(stage)) is not None:
                    done += about.numCompletedTasks
                    tasks += about.numTasks
        return self._total * done // tasks if tasks else 0
