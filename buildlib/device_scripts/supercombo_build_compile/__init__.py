"""What the compile scripts are made of: they load it from beside themselves. Standard library, numpy and tinygrad."""

import os

# tinygrad 0.14 compiles kernels in a pool whose order leaks into the pickle. Read when tinygrad is imported.
os.environ.setdefault("PARALLEL", "0")
