"""Compiles pyromq._native, the fast twins of a few functions, where there is a C compiler.

A wheel or an editable install gets it through the hook below; `make` calls this file whenever a source has changed.
Without a compiler everything is installed all the same, and the Python versions serve.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
PACKAGE = Path("src/pyromq/_native")
FLAGS = ["-O3", "-g0", "-fno-strict-aliasing", "-Wno-unused-function"]


class NativeBuildHook(BuildHookInterface[Any]):
    """Adds what was compiled to a wheel, which is then made for one platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or os.environ.get("PYROMQ_PURE") == "1":
            return
        compiled = build(ROOT)
        if not compiled:
            self.app.display_warning("no C compiler, or no headers of Python: pyromq._native is left out")
        elif version != "editable":
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["artifacts"] += [f"/{path.relative_to(ROOT)}" for path in compiled]


def build(root: Path) -> list[Path]:
    """Compile every module, beside its source; gives the files, or none if that is not possible here."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext
    from setuptools.errors import BaseError, CCompilerError

    with contextlib.chdir(root):
        sources = sorted(PACKAGE.glob("*.pyx"))
        made = root / ".cache" / "native"
        modules = [
            Extension(
                f"pyromq._native.{source.stem}", [str(source)], include_dirs=[str(PACKAGE)], extra_compile_args=FLAGS
            )
            for source in sources
        ]
        command = build_ext(
            Distribution({"ext_modules": cythonize(modules, build_dir=str(made), quiet=True, language_level=3)})
        )
        command.build_temp, command.build_lib = str(made), "src"
        command.force = True
        command.ensure_finalized()
        try:
            command.run()
        except (BaseError, CCompilerError):
            return []
        return [root / output for output in command.get_outputs()]


if __name__ == "__main__":
    sys.exit(0 if build(ROOT) else 1)
