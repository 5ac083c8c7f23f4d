"""Steps of fine-tuning on the pretended card: `python -m tests.gpu.tune`; one JSON line, what was warned of."""

import json
import warnings
from dataclasses import replace
from unittest import mock

import torch
from tests.finetuning.small_source import data, source
from tests.gpu.rehearse import mark

from electra_trainer.finetuning.graphs import Graphs
from electra_trainer.finetuning.run import Job, build_batches, build_network, tuning_step
from electra_trainer.tasks.recipe import recipe
from electra_trainer.train.optim import build_optimizer

STEPS = 6


def main() -> None:
    device = torch.device("cuda")
    settings = recipe("paper", hidden_size=32, epochs=STEPS, batch_size=8, precision="bf16")
    job = Job(source=source(num_hidden_layers=4), data=data(24, seed=1), recipe=settings, seed=2)
    batches = build_batches(job, device=device)
    batches = replace(
        batches, rows=[replace(row, ids=row.ids * (1 + number % 2 * 8)) for number, row in enumerate(batches.rows)]
    )
    network = build_network(job.source, job.data.task, settings, seed=1).to(device).train()
    optimizer = build_optimizer(network, settings.optimizer)
    graphs = Graphs(network=network, precision="bf16", device=device)
    nothing = mock.patch.object(torch.Tensor, "norm", lambda *_: torch.zeros(()))  # values are not pretended
    with nothing, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for step in range(STEPS):
            mark(f"step {step}")
            tuning_step(network, optimizer, batches, step=step, graphs=graphs)
        mark("end")
    print(json.dumps({"said": [str(one.message) for one in said], "shapes": [[*shape] for shape in graphs.made]}))


if __name__ == "__main__":
    main()
