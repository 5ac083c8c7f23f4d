"""A Triton kernel for GPUs, used where `ELECTRA_GPU_KERNELS=on` asks for it and a child process proved it on this card
(train/kernel_proof.py).
"""
