#!/usr/bin/env python3
"""Makes grid_tables.h: the grids of GGUF's IQ formats, as numbers of values.

  make_grid_tables.py        (needs numpy and gguf 0.19.0, from whose gguf.quants the grids are taken)

An entry has the number of each of its values among those that the format has, in two or three bits, the first
lowest; grid_formats.h says what the numbers mean. Deterministic.
"""

import importlib.metadata
import pathlib

import gguf
import numpy as np

HERE = pathlib.Path(__file__).parent
VERSION = "0.19.0"
HEAD = f"""#pragma once
// Made by make_grid_tables.py from the grids of gguf.quants ({VERSION}); not to be edited.
#include <cstdint>

namespace canopy::format {{

/// Entries of a grid, each the numbers of its values, the first in the lowest bits.
template <int kCount>
struct GridTable {{
  std::uint16_t entries[kCount];
}};

// clang-format off
"""
TAIL = """// clang-format on

}  // namespace canopy::format
"""


def entries_of(kind):
    """One number for each entry: [entries]."""
    kind.init_grid()
    grid = kind.grid.reshape(kind.grid_shape)
    numbers = np.searchsorted(kind.grid_map, grid)
    assert (np.array(kind.grid_map)[numbers] == grid).all()
    bits = int(np.ceil(np.log2(len(kind.grid_map))))
    return (numbers << bits * np.arange(grid.shape[1])).sum(axis=1)


def require_even_signs():
    """grid_formats.h computes the eighth sign: of eight, an even number is negative."""
    signs = np.frombuffer(gguf.quants.IQ2_XXS.ksigns, np.uint8)
    assert [int(s) & 127 for s in signs] == list(range(128))
    assert all(int(s).bit_count() % 2 == 0 for s in signs)


def main():
    assert importlib.metadata.version("gguf") == VERSION
    require_even_signs()
    text = HEAD
    for name in ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S"):
        entries = entries_of(getattr(gguf.quants, name))
        text += f"inline constexpr GridTable<{len(entries)}> k{name.replace('_', '')}Grid{{{{\n"
        rows = [entries[at:at + 16] for at in range(0, len(entries), 16)]
        text += ",\n".join("    " + ", ".join(f"0x{value:04x}" for value in row) for row in rows) + "}};\n"
    (HERE / "grid_tables.h").write_text(text + TAIL)


if __name__ == "__main__":
    main()
