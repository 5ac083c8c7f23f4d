"""The table of runs that tests/net.py records."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Run:
    """Commands that belong together."""

    name: str
    lines: str
    """A command a line: words of `electra`, or `cp FROM TO`, `rm PATH`, `same A B` (do two folders hold the same weights?)."""
    needs: tuple[str, ...] = ("data",)
    """Runs whose files these commands read."""


TINY = "--preset tiny --config tiny.json"
ARMS = (
    "electra,electra-15,electra-15-other,mlm,mlm-80-10-10,mlm-rare,mlm-hard,replace-mlm,all-tokens-mlm,unigram,uniform,same-size,sharing-none,"
    "sharing-all,disentangled,two-stage,two-stage-fresh,adversarial,warm-sampling,disallow-correct,sentence-contrast,untrained"
)
QUICK = "--parallel 1 --epochs 2 --batch-size 8 --max-length 24 --learning-rate 5e-3"
PROBED = "--flops 1e8 --arms electra,mlm --probe held-out --probe minimal-pairs=text/pairs"
VERBS = (
    "demo tokenizer prepare pretrain compare finetune predict glue squad answer evaluate replay report score fill cloze minimal-pairs "
    "export table figure show flops doctor"
).split()
OBJECTIVES = "mlm replace-mlm all-tokens-mlm adversarial sentence-contrast".split()

RUNS = (
    Run(
        name="data",
        needs=(),
        lines="""
        tokenizer text/corpus.txt --out tok --vocab-size 300
        tokenizer text/corpus.txt --out tok-cased --vocab-size 300 --cased
        prepare text/corpus.txt --tokenizer tok --out data --seq-len 24 --valid-fraction 0.1 --workers 1
        prepare text/more.jsonl text/corpus.txt --tokenizer tok --out other --seq-len 16 --valid-fraction 0.1 --seed 2 --text-field body
        """,
    ),
    Run(name="rtd", lines=f"pretrain data {TINY} --out runs/rtd --steps 12"),
    Run(
        name="resumed",
        needs=("data", "rtd"),
        lines=f"""
        cp runs/rtd runs/resumed
        rm runs/resumed/checkpoints/step-00000012
        pretrain data {TINY} --out runs/resumed --steps 12
        same runs/rtd/checkpoints runs/resumed/checkpoints
        """,
    ),
    Run(name="mlm", lines=f"pretrain data {TINY} --out runs/mlm --objective mlm --masking.rarity 0.5"),
    Run(name="init", needs=("data", "rtd"), lines=f"pretrain other {TINY} --out runs/init --init runs/rtd --seed 3"),
    Run(name="bf16", lines=f"pretrain data {TINY} --out runs/bf16 --precision bf16 --batch.lanes 2 --quiet"),
    Run(
        name="methods",
        lines=f"""
        pretrain data {TINY} --out runs/replace --objective replace-mlm --sharing none --optimizer.name lamb
        pretrain data {TINY} --out runs/all-tokens --objective all-tokens-mlm --generator unigram --batch.lanes 4
        pretrain data {TINY} --out runs/adversarial --objective adversarial --optimizer.name adamw --generator.depth 0.5
        pretrain data {TINY} --out runs/contrast --objective sentence-contrast --generator.temperature 2 --masking.draw with-replacement
        pretrain data {TINY} --out runs/two-stage --generator.width 1 --sharing none --phases two-stage --objective.loss-over masked
        """,
    ),
    Run(
        name="deterministic",
        lines=f"""
        pretrain data {TINY} --out runs/one --deterministic --batch.lanes 2 --quiet
        pretrain data {TINY} --out runs/two --deterministic --batch.lanes 2 --quiet --processes 2
        same runs/one/checkpoints runs/two/checkpoints
        """,
    ),
    Run(
        name="use",
        needs=("data", "rtd"),
        lines="""
        evaluate runs/rtd data --json
        evaluate runs/rtd data
        score runs/rtd "the chef cooked the meal" --json
        fill runs/rtd "the [MASK] cooked the [MASK]" --json
        fill runs/rtd "the [MASK] cooked the meal" --top 3
        replay runs/rtd --step 7 --json
        replay runs/rtd --step 12
        export runs/rtd --out export
        score export/discriminator "the old ship sold a child"
        """,
    ),
    Run(name="report", needs=("data", "rtd", "mlm"), lines="report runs/rtd runs/mlm --out report.html"),
    Run(
        name="analysis",
        needs=("data", "rtd", "mlm"),
        lines="""
        cloze runs/rtd data --rows 8 --top 20 --against runs/mlm --json
        cloze runs/mlm data --rows 8
        minimal-pairs runs/rtd text/pairs --limit 6 --json
        minimal-pairs runs/mlm text/pairs --limit 6
        figure 2 runs/rtd --out worked-example.svg
        """,
    ),
    Run(
        name="finetune",
        needs=("data", "rtd"),
        lines=f"""
        finetune runs/rtd --train text/classes.csv --dev text/classes-dev.csv --out tune/classes --seeds 2 --baselines {QUICK}
        finetune runs/rtd --train text/scores.csv --task regression --out tune/scores --seeds 1 --pooling mean --json {QUICK}
        finetune runs/rtd --train text/paired.csv --out tune/paired --seeds 1 --recipe released --predict text/paired.csv {QUICK}
        finetune runs/rtd --task tagging --train text/spans.conll --out tune/spans --seeds 2 {QUICK} --parallel 2 --quiet
        finetune runs/rtd --task tagging --train text/train.conllu --dev text/dev.conllu --label upos --out tune/upos --seeds 1 {QUICK}
        predict tune/classes/model text/classes-dev.csv --out predictions.csv
        predict tune/scores/model text/scores.csv --json
        predict tune/spans/model text/spans.conll
        """,
    ),
    Run(
        name="glue",
        needs=("data", "rtd"),
        lines=f"""
        glue runs/rtd --data text/glue --out tune/glue --tasks cola,stsb --seeds 2 --baselines {QUICK}
        """,
    ),
    Run(
        name="squad",
        needs=("data", "rtd"),
        lines=f"""
        squad runs/rtd --train text/squad.json --dev text/squad-dev.json --version 2 --out tune/squad --baselines {QUICK}
        squad runs/rtd --train text/squad-1.json --split 0.3 --version 1 --head independent --out tune/squad-1 {QUICK}
        predict tune/squad/model text/squad-dev.json --out predictions.json
        answer tune/squad/model --context @text/context.txt --question "what was sold ?" --top 2 --json
        """,
    ),
    Run(name="arms", lines=f"compare data {TINY} --out exp/arms --seeds 1 --steps 4 --arms {ARMS}"),
    Run(
        name="compare",
        lines=f"""
        compare data {TINY} --out exp/two --seeds 2 {PROBED} --probe pos=text --probe-sentences 20 --metrics pos/accuracy,held-out/loss
        table 4 exp/two
        table 4 exp/two --out table.csv
        table 4 exp/two --out table.tex
        table 1 exp/two
        table 2 exp/two
        table 3 exp/two
        table 7 exp/two
        table 5
        figure 1 exp/two --out figure1.svg
        figure 3 exp/two --out figure3.svg
        figure 4 exp/two
        """,
    ),
    Run(
        name="cost",
        lines=f"""
        pretrain data {TINY} --out runs/x --dry-run
        show tiny
        show base --json
        show all
        flops all
        flops electra_small --json
        """,
    ),
    Run(
        name="machine",
        needs=(),
        lines="""
        doctor --json
        """,
    ),
    Run(name="help", needs=(), lines="\n".join(["--help", *(f"{verb} --help" for verb in VERBS)])),
    Run(
        name="help-objectives",
        needs=(),
        lines="\n".join(
            f"pretrain data --objective {name} --generator uniform --phases two-stage --help" for name in OBJECTIVES
        ),
    ),
    Run(
        name="errors",
        needs=("data", "rtd"),
        lines="""
        nonsense
        pretrain data --out runs/x --nonsense 1
        pretrain data --out runs/x --preset smal
        pretrain missing --out runs/x --preset tiny
        pretrain data --out runs/x --config text/bad.json
        pretrain data --out runs/x --preset tiny --masking.fraction 2
        pretrain data --out runs/x --preset tiny --objective rdt
        pretrain data --out runs/rtd --preset tiny --seed 9
        prepare text/missing.txt --tokenizer tok --out x
        prepare text/corpus.txt --tokenizer tok --out data
        tokenizer text/bad.txt --out x
        show bas
        table 4 missing
        evaluate runs/missing data
        finetune runs/rtd --train text/classes.csv --text body --out tune/x
        compare data --arms electra,mml --out exp/x --steps 4
        """,
    ),
)
