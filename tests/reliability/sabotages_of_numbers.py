"""Sabotages of what is measured and reported: each went unnoticed once, with every test green."""

from __future__ import annotations

from tests.reliability.sabotages import Sabotage

_END = "tests/google/test_mini_curve.py::test_a_run_ends_where_googles_ended"
_ARM = "tests/presets/test_published_presets.py::test_an_arm_differs_from_its_neighbour_by_its_field"

NUMBERS = (
    Sabotage(
        name="regression-scale",
        takes_away="a number is learned divided by its scale",
        file="tasks/texts.py",
        sought="(example.value - self.shift) / self.scale for",
        put="(example.value - self.shift) for",
        caught_by={
            "tests/tasks/test_metrics.py::test_a_number_is_learned_in_its_scale_and_given_in_the_files": r"assert \[.*approx"
        },
    ),
    Sabotage(
        name="arm-mlm-rare",
        takes_away="the arm mlm-rare masks rare words more often",
        file="presets/arms.py",
        sought="replace(config.masking, rarity=0.5)",
        put="config.masking",
        caught_by={f"{_ARM}[mlm-rare]": r"assert \[.*== \["},
    ),
    Sabotage(
        name="arm-warm-sampling",
        takes_away="the arm warm-sampling samples at temperature 1.5",
        file="presets/arms.py",
        sought="_learned(config, temperature=1.5)",
        put="_learned(config)",
        caught_by={f"{_ARM}[warm-sampling]": r"assert \[.*== \["},
    ),
    Sabotage(
        name="arm-replace-mlm",
        takes_away="the arm replace-mlm puts samples into the input",
        file="presets/arms.py",
        sought="objective=methods.ReplaceMLM()",
        put="objective=methods.MLM()",
        caught_by={f"{_ARM}[replace-mlm]": r"assert \[.*== \["},
    ),
    Sabotage(
        name="rate-of-fakes",
        takes_away="the rate of fakes is that of real tokens, whatever the loss counts",
        file="train/measures.py",
        sought='diagnostics["replaced_BT"][diagnostics["real_BT"]]',
        put='diagnostics["replaced_BT"][counted_BT]',
        caught_by={
            "tests/train/test_measures.py::test_the_rate_of_fakes_is_that_of_real_tokens_whatever_the_loss_counts": r"assert 0\.75 == "
        },
    ),
    Sabotage(
        name="score-of-replaced",
        takes_away="electra score gives the probability of replaced",
        file="pretrained/pretrained.py",
        sought="[0, 1:-1].sigmoid()",
        put="[0, 1:-1].neg().sigmoid()",
        caught_by={
            "tests/pretrained/test_export.py::test_a_score_is_the_probability_of_replaced": r"assert \[.*approx"
        },
    ),
    Sabotage(
        name="learned-mix",
        takes_away="the part-of-speech probe learns which layers it reads",
        file="paper/probes.py",
        sought="nn.Parameter(torch.zeros(states))",
        put="nn.Parameter(torch.zeros(states), requires_grad=False)",
        caught_by={
            "tests/paper/test_part_of_speech.py::test_the_probe_learns_which_layer_to_read": r"assert 0\.3.* > 0\.5"
        },
    ),
    Sabotage(
        name="seed-of-the-glue-probe",
        takes_away="the GLUE probe has the seed of its cell",
        file="paper/probes.py",
        sought="recipe=settings, seed=seed)",
        put="recipe=settings, seed=1)",
        caught_by={
            "tests/paper/test_probes.py::test_glue_is_fine_tuned_with_the_papers_recipe": r"assert \(?1 == 3"
        },
    ),
    Sabotage(
        name="heads-in-an-export",
        takes_away="an export says how many heads its attention has",
        file="pretrained/read_back.py",
        sought='"num_hidden_layers", "num_attention_heads", "intermediate_size",',
        put='"num_hidden_layers", "intermediate_size",',
        caught_by={
            "tests/pretrained/test_export.py::test_same_logits_in_transformers[discriminator]": r"logits differ from transformers'|CheckpointError"
        },
    ),
    Sabotage(
        name="lambda",
        takes_away="the discriminator's loss is weighted by λ",
        file="objectives/rtd.py",
        sought='Term(sum=loss, count=count, weight=self.settings.weight)}',
        put='Term(sum=loss, count=count, weight=1.0)}',
        caught_by={f"{_END}[words]": r"assert .* == .* ± ", f"{_END}[output_bias]": r"assert .* == .* ± "},
    ),
    Sabotage(
        name="samples",
        takes_away="the generator's words are samples, not its likeliest",
        file="objectives/generation.py",
        sought="return Generated(tokens.loss, tokens.sampled_K,",
        put="return Generated(tokens.loss, (project.float() @ generator.output()[0].T + generator.output()[1]).argmax(-1),",
        caught_by={f"{_END}[discriminator_loss]": r"assert .* == .* ± ", f"{_END}[words]": r"assert .* == .* ± "},
    ),
)  # fmt: skip
