"""Deeds that a capture must refuse, done on purpose: `python -m tests.gpu.forbidden` prints, for each deed, whether an error was raised."""

import ctypes
import json
from collections.abc import Callable

import torch
from torch import Tensor

_CARD = ctypes.CDLL("libcuda.so.1")


def wait(x: Tensor) -> None:
    torch.cuda.synchronize()


def read(x: Tensor) -> None:
    x.sum().item()


def query(x: Tensor) -> None:
    event = torch.cuda.Event()
    event.record(torch.cuda.Stream())
    event.query()


def pageable(x: Tensor) -> None:
    x.copy_(torch.ones(x.shape), non_blocking=True)


def escape(x: Tensor) -> None:
    with torch.cuda.stream(torch.cuda.default_stream()):
        x.add_(1)


def outside(x: Tensor) -> None:
    torch.cuda.current_stream().wait_stream(BEFORE)


def unjoined(x: Tensor) -> None:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x.add_(1)


def both(x: Tensor) -> None:
    """Allowed: another stream that joins and is waited for."""
    x.add_(1)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x.mul_(2)
    torch.cuda.current_stream().wait_stream(side)


DEEDS: tuple[Callable[[Tensor], None], ...] = (wait, read, query, pageable, escape, outside, unjoined, both)


def main() -> None:
    global BEFORE
    BEFORE = torch.cuda.Stream()
    x = torch.zeros(1000, device="cuda")
    with torch.cuda.stream(BEFORE):
        x.add_(1)
    for deed in DEEDS:
        _CARD.card_mark(deed.__name__.encode())
        raised = ""
        try:
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                deed(x)
        except RuntimeError as error:
            raised = str(error).splitlines()[0]
        print(json.dumps([deed.__name__, raised]), flush=True)


if __name__ == "__main__":
    main()
