// A shared library of one function, which a test loads under names of CUDA's.
extern "C" int canopy_tiny() { return 42; }
