"""How our readers and writers get to executors, and what is said by one that lacks the package.

Spark pickles them on the driver, and the data source with them. Where `pyromq` is not installed, opening such a pickle
ends in a trace through Spark's serialisers; so it is opened by a function that travels along, needs nothing but Python,
and says who lacks what.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyromq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

# Instance attributes that are for the planner alone: it refers back to its reader, and no task asks for it.
_STAYS_BEHIND = "pushFilters"


class Shipped:
    """Something that Spark sends to executors. To be inherited before Spark's own class."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Callable[[bytes], object], tuple[bytes]]:
        state = dict(self.__getstate__() or {})  # type: ignore[call-overload]  # a dict: nobody here has slots
        state.pop(_STAYS_BEHIND, None)
        return _by_value(), (pickle.dumps((type(self), state)),)


def _by_value() -> Callable[[bytes], object]:
    # cloudpickle sends a function by its name if a module has it, and by its code if it is made inside another one.
    def open_shipped(payload: bytes) -> object:
        import pickle
        import socket
        import sys

        try:
            kind, state = pickle.loads(payload)
        except ModuleNotFoundError as exc:
            said = f"{socket.gethostname()}: {sys.executable} has no module {exc.name!r}, which PyroMQ needs there"
            raise RuntimeError(f"{said}; pyromq.spark.doctor(spark) checks all executors") from None
        found = kind.__new__(kind)
        found.__dict__.update(state)
        return found

    return open_shipped


def package_zip(folder: Path | None = None) -> Path:
    """A zip of this package, as Spark takes it along (`--py-files`). Raises ConfigError if there are no files of it."""
    import tempfile
    import zipfile

    source = Path(__file__).parents[2]
    modules = sorted([*source.glob("pyspark_rocketmq*.py"), *(source / "pyromq").rglob("*.py")])
    if not modules:
        raise ConfigError("PyroMQ is not installed as plain files here, so it cannot be sent along; use --py-files")
    path = Path(folder or tempfile.mkdtemp(prefix="pyromq-")) / "pyromq.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for module in modules:
            made.write(module, str(module.relative_to(source)))
    return path
