"""Ships our readers and writers to executors, with a clear error where the package is missing.

Spark pickles them on the driver, and the data source with them. Where `pyromq` is not installed, opening such a pickle
ends in a trace through Spark's serialisers; so a function that travels along opens it, needs only Python,
and says what is missing where.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyromq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

# Attributes only for the planner: it refers back to its reader, and no task needs it.
_STAYS_BEHIND = "pushFilters"


class Shipped:
    """Something that Spark sends to executors. Inherit it before Spark's own class."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Callable[[bytes], object], tuple[bytes]]:
        state = dict(self.__getstate__() or {})  # type: ignore[call-overload]  # a dict: nobody here has slots
        state.pop(_STAYS_BEHIND, None)
        return _by_value(), (pickle.dumps((type(self), state)),)


def _by_value() -> Callable[[bytes], object]:
    # cloudpickle sends a module's function by name, but one defined inside another function as code.
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
    """A zip of this package for Spark (`--py-files`). Raises ConfigError if it is not installed as files."""
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
