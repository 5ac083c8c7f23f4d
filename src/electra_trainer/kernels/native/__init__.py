"""Kernels for CPUs: the encoder's layers and the vocabulary's softmax in C++, compiled at first use.

They compute what model/encoder.py and kernels/vocabulary_softmax.py compute, in bf16 or fp32, and are used in their
place where a C++ compiler and the instructions of a variant (variants.toml) are there. `ELECTRA_NATIVE=off` leaves them
out.
"""
