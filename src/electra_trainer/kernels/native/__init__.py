"""Kernels for CPUs with matrix tiles (Intel AMX): the encoder's layers and the vocabulary's softmax, compiled at first use.

They compute what model/encoder.py and objectives/vocabulary_softmax.py compute in bf16, and are used in their place where they can be:
on a CPU, in bf16, where a C++ compiler and the instructions are there. `ELECTRA_NATIVE=off` leaves them out.
"""
