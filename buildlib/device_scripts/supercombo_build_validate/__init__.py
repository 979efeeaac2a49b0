"""What the harness is made of: it loads it from beside itself. Standard library, numpy and tinygrad."""
