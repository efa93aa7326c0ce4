#!/usr/bin/env python3
"""Makes fp8.golden: E4M3 codes, scales and the floats that they stand for.

  make_fp8_goldens.py        (needs numpy 2.2.6 and ml_dtypes 0.5.4)

The file holds, one after another: the float32 values of the 256 codes as ml_dtypes has them; then
of each matrix of MATRICES the codes, the scales as they are stored, and the float32 weights, which
are the exact products of code and scale, rounded once. A matrix of 128 x 128 blocks that its shape
does not fill ends in smaller ones. Scales are F32, BF16 or E8M0; ml_dtypes reads the latter two.
Deterministic.
"""

import pathlib

import ml_dtypes
import numpy as np

HERE = pathlib.Path(__file__).parent
# Rows, columns, rows and columns of a scale, and the scale's type.
MATRICES = [
    (130, 140, 128, 128, "F32"),
    (7, 129, 128, 128, "BF16"),
    (257, 9, 128, 128, "E8M0"),
    (5, 77, 1, 77, "F32"),
    (6, 40, 6, 40, "BF16"),
]
TYPES = {"F32": np.float32, "BF16": ml_dtypes.bfloat16, "E8M0": ml_dtypes.float8_e8m0fnu}


def matrix(rows, columns, scale_rows, scale_columns, kind, rng):
    codes = rng.integers(0, 256, (rows, columns), dtype=np.uint8)
    codes[(codes & 0x7F) == 0x7F] -= 1
    shape = (-(-rows // scale_rows), -(-columns // scale_columns))
    exponents = rng.uniform(-20, 8, shape)
    scales = np.exp2(np.floor(exponents) if kind == "E8M0" else exponents).astype(TYPES[kind])
    spread = np.repeat(np.repeat(scales.astype(np.float64), scale_rows, 0), scale_columns, 1)
    # The product has at most 4 + 24 bits, which float64 holds.
    exact = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64) * spread[:rows, :columns]
    return codes.tobytes() + scales.tobytes() + exact.astype("<f4").tobytes()


def main():
    rng = np.random.default_rng(46)
    values = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype("<f4")
    parts = [values.tobytes()] + [matrix(*m, rng) for m in MATRICES]
    (HERE / "fp8.golden").write_bytes(b"".join(parts))


if __name__ == "__main__":
    main()
