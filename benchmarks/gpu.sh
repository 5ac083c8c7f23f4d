#!/usr/bin/env bash
# Everything wanted from a GPU in one go, offline: parity with the CPU, speed of the presets, then a Small run with the time left.
#
#   benchmarks/gpu.sh OUT [SECONDS_TO_TRAIN]      results land in OUT: parity.jsonl, speed.txt, environment.txt, run/
#
# DEVICE=cpu PRESETS=tiny rehearses it on a CPU. The text is the embedded corpus, so nothing has to be brought along; DATA=folder takes
# a prepared one with rows of 128 instead.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?"usage: benchmarks/gpu.sh OUT [SECONDS_TO_TRAIN]"}
seconds=${2:-600}
device=${DEVICE:-cuda}
presets=${PRESETS:-"small base large"}
python=${PYTHON:-python3}
export PYTHONPATH=src
mkdir -p "$out"
"$python" -m electra_trainer doctor | tee "$out/environment.txt"
"$python" -m benchmarks.parity --device "$device" | tee "$out/parity.jsonl"
data=${DATA:-$out/data}
if [ ! -e "$data/manifest.json" ]; then
  "$python" -m electra_trainer tokenizer docstrings --vocab-size 16384 --out "$out/tokenizer"
  "$python" -m electra_trainer prepare docstrings --tokenizer "$out/tokenizer" --seq-len 128 --out "$data"
fi
for preset in $presets; do
  echo "== $preset"
  "$python" -m electra_trainer pretrain "$data" --preset "$preset" --out "$out/none" --device "$device" --dry-run
done | tee "$out/speed.txt"
first=${presets%% *}
"$python" -m electra_trainer pretrain "$data" --preset "$first" --out "$out/run" --device "$device" --budget "${seconds}s"
"$python" -m electra_trainer export "$out/run" --out "$out/export"
