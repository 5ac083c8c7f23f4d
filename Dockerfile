# The image that docs/gpu.md runs, of this clone:
#
#     docker build --tag electra-trainer .                           for CPUs
#     docker build --tag electra-trainer --build-arg DEVICE=gpu .    for NVIDIA's GPUs, several gigabytes more

FROM python:3.12-slim-bookworm

# g++ compiles the native kernels of CPUs at the first start, and gcc what Triton launches on GPUs
RUN apt-get update \
 && apt-get install --yes --no-install-recommends g++ \
 && rm -rf /var/lib/apt/lists/*

ARG DEVICE=cpu
WORKDIR /opt/electra-trainer
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY src ./src
# PyTorch's default build on Linux is the one for GPUs; the other index has the one for CPUs
RUN if [ "$DEVICE" = cpu ]; then export PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu; fi \
 && pip install --no-cache-dir --constraint constraints.txt '.[hub]'

RUN useradd --create-home --uid 1000 electra
USER 1000
WORKDIR /home/electra
ENTRYPOINT ["electra"]
CMD ["--help"]
