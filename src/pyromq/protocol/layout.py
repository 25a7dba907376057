"""Fixed layouts: fields of known size, one behind the other, big-endian.

A layout is written down once, field by field, and everything else is derived from it: the Struct that packs it, the
position of a field, a Struct for some of the fields, the numpy type of an array of them. A position that is typed a
second time is one that can be wrong.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

# What numpy calls the codes of `struct`; bytes ("8s") become V8.
_NUMPY = {"b": "i1", "h": ">i2", "i": ">i4", "q": ">i8"}


class Layout:
    """Named fields, each with its code as `struct` has it, in their order."""

    __slots__ = ("codes", "positions", "struct")

    def __init__(self, **codes: str) -> None:
        self.codes = codes
        self.struct = struct.Struct(">" + "".join(codes.values()))
        self.positions: dict[str, int] = {}
        at = 0
        for name, code in codes.items():
            self.positions[name] = at
            at += struct.calcsize(f">{code}")

    @property
    def size(self) -> int:
        return self.struct.size

    def only(self, *names: str) -> struct.Struct:
        """The same layout with the other fields passed over. It gives the fields in the order of the layout."""
        codes = {name: f"{struct.calcsize(f'>{code}')}x" for name, code in self.codes.items()}
        codes |= {name: self.codes[name] for name in names}
        return struct.Struct(">" + "".join(codes.values()))

    def dtype(self, *names: str) -> np.dtype[np.void]:
        """The numpy type of a record with these fields, or with all of them."""
        # Not above: it takes a tenth of a second to import, and a broker starts without it.
        import numpy as np

        wanted = names or tuple(self.codes)
        return np.dtype(
            {
                "names": list(wanted),
                "formats": [_numpy_code(self.codes[name]) for name in wanted],
                "offsets": [self.positions[name] for name in wanted],
                "itemsize": self.size,
            }
        )


def _numpy_code(code: str) -> str:
    return f"V{code[:-1]}" if code.endswith("s") else _NUMPY[code]
