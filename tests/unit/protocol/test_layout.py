"""Layouts: what is derived from one agrees with its Struct, byte for byte."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pyromq.protocol.layout import Layout
from pyromq.protocol.record import HEAD_LAYOUTS, HEADS
from pyromq.store.format import ENTRY, ENTRY_LAYOUT, INDEX_ENTRY, INDEX_ENTRY_LAYOUT, INDEX_SLOT, INDEX_SLOT_LAYOUT

SOURCE = Path(__file__).parents[3] / "src" / "pyromq"
ALL = {
    "bytes and shorts": Layout(mark="3s", kind="b", count="h", size="i", offset="q"),
    "queue entry": ENTRY_LAYOUT,
    "index entry": INDEX_ENTRY_LAYOUT,
    "index slot": INDEX_SLOT_LAYOUT,
    **{f"head {bits}": layout for bits, layout in enumerate(HEAD_LAYOUTS)},
}


def values(layout: Layout) -> list[int | bytes]:
    """A different one for every field."""
    return [bytes(range(int(code[:-1]))) if "s" in code else at - 5 for at, code in enumerate(layout.codes.values())]


@pytest.mark.parametrize("layout", ALL.values(), ids=ALL)
def test_numpy_reads_and_writes_what_the_struct_does(layout):
    kind = layout.dtype()
    packed = layout.struct.pack(*values(layout))
    assert kind.itemsize == layout.struct.size == layout.size
    assert {name: place for name, (_, place) in kind.fields.items()} == layout.positions
    (found,) = np.frombuffer(packed, kind)
    assert [found[name].tobytes() if "s" in code else found[name] for name, code in layout.codes.items()] == values(
        layout
    )
    written = np.zeros(1, kind)
    for name, value in zip(layout.codes, values(layout), strict=True):
        written[name] = np.void(value) if isinstance(value, bytes) else value
    assert written.tobytes() == packed


@pytest.mark.parametrize("layout", ALL.values(), ids=ALL)
def test_some_of_the_fields_lie_where_they_lie_among_all(layout):
    packed = layout.struct.pack(*values(layout))
    for name, value in zip(layout.codes, values(layout), strict=True):
        assert layout.only(name).size == layout.size
        assert layout.only(name).unpack(packed) == (value,)
        assert layout.dtype(name).itemsize == layout.size
        assert layout.dtype(name).fields[name] == layout.dtype().fields[name]


def test_the_structs_that_are_used_are_those_of_the_layouts():
    assert tuple(layout.struct for layout in HEAD_LAYOUTS) == HEADS
    assert (
        ENTRY_LAYOUT.struct,
        INDEX_ENTRY_LAYOUT.struct,
        INDEX_SLOT_LAYOUT.struct,
    ) == (ENTRY, INDEX_ENTRY, INDEX_SLOT)


def test_a_field_that_is_not_there_is_not_passed_over():
    with pytest.raises(KeyError):
        ENTRY_LAYOUT.only("physical")
    with pytest.raises(KeyError):
        ENTRY_LAYOUT.dtype("physical")


def test_no_module_types_a_numpy_layout_again():
    typed = re.compile(r'np\.dtype\(\s*[\[{]|"[<>][iu][248]"\)\]')
    again = [path for path in SOURCE.rglob("*.py") if path.name != "layout.py" and typed.search(path.read_text())]
    assert again == []


def test_layouts_do_not_import_numpy_before_they_need_it():
    code = "import sys, pyromq.store.store, pyromq.protocol.record; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
