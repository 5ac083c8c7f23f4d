"""Google's fine-tuning heads: logits, losses, beams and one step of each layer's own rate, with nothing but this repository.

The encoder is the discriminator's of the small reference, the rows are its batch without masks, dropout is off.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from tests.finetuning.test_layer_rates import our_name
from tests.google import mini_reference as mini
from tests.google import reference
from tests.google.reference import Arrays, worst
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.finetuning.run import FineTunedNetwork, layer_share
from electra_trainer.model.encoder import Encoder
from electra_trainer.tasks import heads
from electra_trainer.tasks.heads import JointHead, Places
from electra_trainer.tasks.recipe import recipe
from electra_trainer.tasks.task import Row
from electra_trainer.tasks.texts import Classification, Regression
from electra_trainer.train.optim import build_optimizer
from electra_trainer.train.step import update

LOGITS, LOSSES = 3e-5, 2e-5  # absolute
NEVER = -500.0
"""Below are positions outside of the passage: 1,000 is subtracted from them."""
CLASSES = Classification(labels=("0", "1"))
LAYERS = {
    "dense": "start",
    "qa_hidden": "end_dense",
    "dense_1": "end",
    "dense_2": "answerable_dense",
    "dense_3": "answerable",
}


class Reference(NamedTuple):
    arrays: Arrays
    encoder: Encoder
    batch: Batch


@pytest.fixture(scope="module")
def google() -> Reference:
    batch = reference.masked(mini.read("forward")).batch
    return Reference(mini.read("finetune"), mini.objective().discriminator.electra, batch)


def layer(google: Reference, task: str, name: str) -> dict[str, Tensor]:
    """Google's weight and bias of one layer of a head, as ours."""
    values = {leaf: google.arrays[f"var/task_specific/{task}/{name}/{leaf}"] for leaf in ("kernel", "bias")}
    return {
        "weight": reference.as_ours("kernel", values["kernel"]), "bias": reference.as_ours("bias", values["bias"]),
    }  # fmt: skip


def linear(google: Reference, task: str, *names: str) -> nn.Linear:
    """A linear layer with Google's weights; several of theirs are the rows of one here."""
    layers = [layer(google, task, name) for name in names]
    given = {leaf: torch.cat([one[leaf] for one in layers]) for leaf in ("weight", "bias")}
    head = nn.Linear(32, len(given["bias"]))
    reference.fill(head, given)
    return head


def joint(google: Reference) -> JointHead:
    """SQuAD 2.0's head with Google's weights."""
    head = JointHead(32, width=512, answerable=True)
    reference.fill(
        head,
        {
            f"{ours}.{leaf}": values
            for theirs, ours in LAYERS.items()
            for leaf, values in layer(google, "squad", theirs).items()
        },
    )
    return head


HEADS: dict[str, Callable[[Reference], nn.Module]] = {
    "mrpc": lambda google: linear(google, "mrpc", "dense"),
    "sts": lambda google: linear(google, "sts", "dense"),
    "squad_train": joint,
    "squadv1_train": lambda google: linear(google, "squadv1", "dense", "dense_1"),
}


def fine_tuned(google: Reference, run: str) -> FineTunedNetwork:
    """A fresh copy of the encoder under Google's head of that run."""
    encoder = Encoder(mini.MODEL)
    encoder.load_state_dict(google.encoder.state_dict())
    return FineTunedNetwork(encoder, HEADS[run](google), dropout=0.0).eval()


def targets(values: Any) -> list[Row]:
    return [Row(ids=(), example=index, target=value) for index, value in enumerate(values.tolist())]


def spans(google: Reference) -> tuple[Tensor, Tensor]:
    """Columns of the answers, and 1 where a question has none."""
    ends = [torch.from_numpy(google.arrays[f"{name}_positions"]).long() for name in ("start", "end")]
    return torch.stack(ends, dim=1), torch.from_numpy(google.arrays["is_impossible"]).float()


def allowed(google: Reference, run: str) -> Tensor:
    return torch.from_numpy(google.arrays[f"{run}/start_logits"] > NEVER)


def classification_loss(google: Reference, network: FineTunedNetwork) -> Tensor:
    rows = targets(google.arrays["label_ids"])
    return CLASSES.loss(network.head, network(google.batch), google.batch, rows)[0]


def regression_loss(google: Reference, network: FineTunedNetwork) -> Tensor:
    rows = targets(google.arrays["targets"])
    return Regression().loss(network.head, network(google.batch), google.batch, rows)[0]


def joint_loss(google: Reference, network: FineTunedNetwork) -> Tensor:
    """SQuAD 2.0: the start, the end given the true start, and whether there is an answer."""
    assert isinstance(network.head, JointHead)
    allowed_BT, (span_B2, none_B) = allowed(google, "squad_train"), spans(google)
    return heads.joint_loss(
        network.head, network(google.batch), allowed_BT, span_B2=span_B2, no_answer_B=none_B, weight=0.5
    )


def independent_loss(google: Reference, network: FineTunedNetwork) -> Tensor:
    allowed_BT, (span_B2, _) = allowed(google, "squadv1_train"), spans(google)
    return heads.independent_loss(network.head, network(google.batch), allowed_BT, span_B2=span_B2)


LOSS = {
    "mrpc": classification_loss, "sts": regression_loss, "squad_train": joint_loss, "squadv1_train": independent_loss,
}  # fmt: skip


@pytest.mark.parametrize("run", LOSS)
def test_losses(run: str, google: Reference) -> None:
    loss = LOSS[run](google, fine_tuned(google, run))
    assert float(loss.detach()) == pytest.approx(float(google.arrays[f"{run}/loss_sum"]), abs=8 * LOSSES)


@torch.no_grad()
def test_predictions(google: Reference) -> None:
    """Steps of a classification and a regression."""
    classes = fine_tuned(google, "mrpc")
    hidden_BTD = classes(google.batch)
    assert worst(CLASSES.output(classes.head, hidden_BTD, google.batch), google.arrays["mrpc/logits"]) <= LOGITS
    said = CLASSES.read(classes.head, hidden_BTD, google.batch, [])
    assert np.argmax(said, axis=1).tolist() == google.arrays["mrpc/predictions"].tolist()
    value = Regression().read(fine_tuned(google, "sts").head, hidden_BTD, google.batch, [])
    assert worst(torch.tensor(value)[:, 0], google.arrays["sts/predictions"]) <= LOGITS


@torch.no_grad()
def test_joint_head(google: Reference) -> None:
    """The start, the end given the true start, and no answer, each before the loss."""
    network = fine_tuned(google, "squad_train")
    head, hidden_BTD = network.head, network(google.batch)
    assert isinstance(head, JointHead)
    theirs, allowed_BT, (span_B2, _) = google.arrays, allowed(google, "squad_train"), spans(google)
    start_BT = head.start_logits(hidden_BTD, allowed_BT)
    end_BT = head.end_logits(hidden_BTD, span_B2[:, :1], allowed_BT)[:, 0]
    for name, ours in (("start", start_BT), ("end", end_BT)):
        assert worst(ours[allowed_BT], theirs[f"squad_train/{name}_logits"][allowed_BT.numpy()]) <= LOGITS
    none = head.no_answer_logits(hidden_BTD, start_BT)
    assert none is not None and worst(none, theirs["squad_train/answerable_logit"]) <= LOGITS


@torch.no_grad()
def test_beam(google: Reference) -> None:
    """The five best starts and of each the five best ends, where there are five."""
    network = fine_tuned(google, "squad_train")
    assert isinstance(network.head, JointHead)
    theirs, allowed_BT = google.arrays, allowed(google, "squad_predict")
    beam = heads.joint_beam(network.head, network(google.batch), Places(allowed_BT, allowed_BT), beam=5)
    there_BS = torch.from_numpy(theirs["squad_predict/start_top_log_probs"] > NEVER)
    assert worst(beam.start_score_BS[there_BS], theirs["squad_predict/start_top_log_probs"][there_BS.numpy()]) <= LOGITS
    assert beam.start_BS[there_BS].tolist() == theirs["squad_predict/start_top_index"][there_BS.numpy()].tolist()
    score_BSE, end_BSE = beam.end_score_BST.topk(5, dim=-1)
    both = torch.from_numpy(theirs["squad_predict/end_top_log_probs"] > NEVER) & there_BS[..., None]
    assert worst(score_BSE[both], theirs["squad_predict/end_top_log_probs"][both.numpy()]) <= LOGITS
    assert end_BSE[both].tolist() == theirs["squad_predict/end_top_index"][both.numpy()].tolist()
    assert int(both.sum()) > 50
    assert worst(beam.no_answer_B, theirs["squad_predict/answerable_logit"]) <= LOGITS


@torch.no_grad()
def test_independent_head(google: Reference) -> None:
    network, allowed_BT = fine_tuned(google, "squadv1_train"), allowed(google, "squadv1_train")
    logits_BT2 = network.head(network(google.batch))
    for index, name in enumerate(("start", "end")):
        expected = google.arrays[f"squadv1_train/{name}_logits"][allowed_BT.numpy()]
        assert worst(logits_BT2[..., index][allowed_BT], expected) <= LOGITS


@pytest.mark.parametrize("run", LOSS)
def test_gradients(run: str, google: Reference) -> None:
    """The norm of all of them, and of the word table's alone."""
    network = fine_tuned(google, run)
    LOSS[run](google, network).backward()
    norms = google.arrays[f"{run}/grad_norms"].tolist()
    whole = torch.stack([one.grad.double().norm() for one in network.parameters() if one.grad is not None]).norm()
    words = network.electra.embeddings.word_embeddings.weight.grad
    assert words is not None
    assert float(whole) == pytest.approx(norms[0], rel=1e-4)
    assert float(words.norm()) == pytest.approx(norms[2], rel=1e-4)


def test_a_step_with_the_rates_of_layers(google: Reference) -> None:
    """How far each variable moves in one step of the released recipe, at 1e-3 and a decay of 0.8.

    Its clipping divides by another norm, in which the gradients of repeated tokens are not added up (TensorFlow's
    IndexedSlices): 2.824 for 2.449 here.
    """
    norm, by_token = google.arrays["mrpc/grad_norms"].tolist()[:2]
    network = fine_tuned(google, "mrpc")
    start = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
    settings = recipe("released", hidden_size=32, epochs=3)
    optimizer = build_optimizer(network, settings.optimizer, layer_share(settings, 2))
    classification_loss(google, network).backward()
    update(network, optimizer, clip_norm=settings.clip_norm * norm / by_token, rate=1e-3)
    for row, expected in zip(
        mini.table("layer_lr_2layer_0.8.csv", delimiter=","), google.arrays["mrpc/step_dw_l2"].tolist(), strict=True
    ):
        name = our_name(row["variable"])
        if not name.endswith("key.bias"):
            moved = float((network.get_parameter(name).detach() - start[name]).norm())
            assert moved == pytest.approx(expected, rel=1e-4, abs=1e-7), name
