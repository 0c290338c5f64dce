"""Kipp's demo checkpoint: data generator, training, packing and evaluation. Described in docs/demo.md."""
