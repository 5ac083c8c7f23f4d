#!/usr/bin/env bash
# Everything wanted from a GPU in one go, offline, in at most 25 minutes on one H200:
#
#   PYTHON=python3 benchmarks/gpu.sh OUT [SECONDS]
#
# SECONDS (1400 if not given) is for all of it. What the measurements leave is a Small run's, so that OUT has a real run too. Each stage has
# its own limit; one that fails or runs over is named in OUT/stages.txt and the next one begins. A second call with the same OUT
# leaves out the stages that are done, and goes on with the run.
#
# DATA=folder takes prepared data (rows of 128) instead of the documentation of the packages installed here.
# DEVICE=cpu PRESETS=tiny rehearses it on a CPU with small shapes.
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:?"usage: [PYTHON=python3] [DATA=folder] benchmarks/gpu.sh OUT [SECONDS]"}
seconds=${2:-1400}
device=${DEVICE:-cuda}
read -r -a presets <<<"${PRESETS:-small base large}"
python=${PYTHON:-python3}
first=${presets[0]}
mkdir -p "$out/record"
out=$(cd "$out" && pwd)
export PYTHONPATH="$PWD/src:$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
ends=$((SECONDS + seconds))
reserved=$((seconds / 5)) # kept for the run at the end, whatever the stages before it take

# stage NAME LIMIT FILE COMMAND...: standard output to record/FILE, the rest to NAME.log
stage() {
  local name=$1 limit=$2 file=$out/record/$3 began=$SECONDS left=$((ends - reserved - SECONDS)) code
  shift 3
  if grep -qs "^$name: done" "$out/record/stages.txt"; then return; fi
  if ((left < 20)); then
    echo "$name: left out, no time" | tee -a "$out/record/stages.txt"
    return
  fi
  echo "== $name (at most $((limit < left ? limit : left)) s)"
  timeout --kill-after=20 $((limit < left ? limit : left)) "$@" >"$file" 2>"$out/$name.log"
  code=$?
  if ((code == 0)); then
    echo "$name: done in $((SECONDS - began)) s" | tee -a "$out/record/stages.txt"
  else
    echo "$name: FAILED with $code after $((SECONDS - began)) s; see $name.log" | tee -a "$out/record/stages.txt"
    tail -n 3 "$out/$name.log"
    [ -s "$file" ] || rm -f "$file"
  fi
}

batch_of() { case $1 in small*) echo 128 ;; base) echo 64 ;; large) echo 32 ;; *) echo 16 ;; esac; }
if [ "$device" = cuda ]; then short=5 batches="64 128 256 512 1024"; else short=0.5 batches="8 16 32"; fi
small_shape=(--preset "$first")
[ "$device" = cuda ] || small_shape+=(--layers 2)

stage environment 60 machine.json "$python" -m benchmarks.gpu_environment --device "$device"
stage parity 240 parity.jsonl "$python" -m benchmarks.parity --device "$device" "${small_shape[@]}" --arms
stage tests 180 tests.txt "$python" -m pytest -c /dev/null --rootdir . --import-mode importlib -q -p no:cacheprovider tests/kernels/gpu tests/train/test_static.py tests/train/test_graph.py tests/methods
for preset in "${presets[@]}"; do
  batch=$(batch_of "$preset")
  stage "speed-$preset" 240 "speed-$preset.json" "$python" -m benchmarks.speed --preset "$preset" --batch "$batch" --device "$device" --json
  [ "$preset" = large ] || stage "ways-$preset" 150 "ways-$preset.jsonl" \
    "$python" -m benchmarks.gpu_steps ways --preset "$preset" --batch "$batch" --device "$device" --seconds $short
done
for preset in "${presets[@]:0:2}"; do
  stage "profile-$preset" 100 "profile-$preset.json" \
    "$python" -m benchmarks.gpu_profile --preset "$preset" --batch "$(batch_of "$preset")" --device "$device"
done
# shellcheck disable=SC2086
stage memory 150 memory.jsonl "$python" -m benchmarks.gpu_steps batches --preset "$first" --batch $batches --device "$device" --seconds $short
stage deterministic 100 deterministic.jsonl \
  "$python" -m benchmarks.gpu_steps deterministic --preset "$first" --batch "$(batch_of "$first")" --device "$device" --seconds $short

# The time that is left, but for starting, evaluating, exporting
reserved=0
left=$((ends - SECONDS))
train=$((left * 7 / 10 - 20))
((train > 5)) || train=5
stage run $((left > 40 ? left : 40)) run.json \
  "$python" -m benchmarks.gpu_run "$out/training" --preset "$first" --seconds "$train" --device "$device" ${DATA:+--data "$DATA"}
if [ -d "$out/training/record" ]; then
  mkdir -p "$out/record/run"
  cp -r "$out/training/record/." "$out/training/held-out.json" "$out/training/length.json" "$out/record/run/"
fi
find "$out/record" -size +4M -print -delete | sed 's/$/: over 4 MB, not kept in the record/'
echo "== $out/record"
cat "$out/record/stages.txt"
