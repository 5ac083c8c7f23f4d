#!/usr/bin/env bash
# What is wanted from a GPU, for machines that end a command after ten minutes and forget everything between two commands:
#
#   gpu.sh 0              Five minutes on a machine that nobody has seen: the default trains, is killed, resumes, exports and is timed
#                         beside transformers. OUT/page.md is one page that can be sent
#   gpu.sh 1              Is it right? One step in every way, the tests that need a card
#   gpu.sh 2              Where does the time go? Each optimisation left out, kernels, gaps, batches
#   gpu.sh 3              The figures: against transformers, what to expect, and a run that is stopped and resumed
#   gpu.sh 4              Every arm of the paper's experiments, one step in two ways
#   gpu.sh train MINUTES  Train, from where the carried run stopped
#
# A call ends within BUDGET seconds (570). OUT, the folder that comes back, then has record.tgz (what was measured, written again after every
# stage), cache.tgz (compiled kernels) and after `train` carried.* (the run). The next call reads the last two from CARRY (.carry). A stage
# that fails or runs over is named in stages.txt, and the next one begins. No command-line package is needed; wheels in .whl are installed.
#
#   PYTHON=python3  DEVICE=cuda  PRESETS="small base"  SCRATCH=/tmp/electra-gpu
#   DATA=rows that `prepare` made, a folder or a compressed tar of one (the documentation of the packages here if not given)
#   STEPS=of the whole run that `train` is a part of (100000)   CHANGE=settings of runs, as {"schedule": {"shape": "wsd"}}
#   REVISION=what `git describe` says, where .git does not travel
#
# DEVICE=cpu PRESETS=tiny BUDGET=60 rehearses a call.
set -uo pipefail
cd "$(dirname "$0")/.."
usage='usage: OUT=folder benchmarks/gpu.sh 0|1|2|3|4, or train MINUTES'
call=${1:?$usage}
[[ $call =~ ^[0-4]$ || ($call == train && ${2:-} =~ ^[0-9.]+$) ]] || { echo "$usage" >&2 && exit 78; }
[ "$call" = 0 ] && budget=${BUDGET:-300} || budget=${BUDGET:-570}
device=${DEVICE:-cuda} python=${PYTHON:-python3} carry=$(realpath -m "${CARRY:-.carry}")
read -r -a presets <<<"${PRESETS:-small base}"
first=${presets[0]}
mkdir -p "${OUT:?$usage}"
out=$(cd "$OUT" && pwd)
work=${SCRATCH:-/tmp/electra-gpu} # the same in every call: compiled kernels are found by their paths
record=$work/record/$call child=''
rm -rf "$work"/{record,run,data,carried,site} && mkdir -p "$record" "$work/cache/triton" && : >"$record/stages.txt"

export REVISION=${REVISION:-$(git describe --always --dirty 2>/dev/null || echo unknown)}
export PYTHONPATH="$PWD/src:$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
export TRITON_CACHE_DIR=$work/cache/triton TORCHINDUCTOR_CACHE_DIR=$work/cache/inductor

keep() { # what has been measured so far
  [ ! -d "$work/run/record" ] || cp -r "$work/run/record/." "$record/run"
  tar -czf "$work/record.tgz" -C "$work" record && mv "$work/record.tgz" "$out/record.tgz"
}
finish() {
  trap - EXIT
  [ -z "$child" ] || kill "$child" 2>/dev/null
  keep
  for part in cache cache/triton; do # what PyTorch's compiler leaves may be too much to come back
    timeout 10 tar -czf "$work/cache.tgz" -C "$work" --ignore-failed-read "$part" && [ -z "$(find "$work/cache.tgz" -size +15M)" ] || continue
    mv "$work/cache.tgz" "$out" && break
  done
  cat "$record/stages.txt"
}
trap finish EXIT
trap 'exit 143' TERM INT

# stage NAME LIMIT COMMAND...: standard output to NAME.txt, the rest to NAME.log; limits are those of a BUDGET of 570 s
stage() {
  local name=$1 limit=$(($2 * budget / 570)) left=$((budget - 12 - SECONDS)) began=$SECONDS code=0 said
  shift 2
  if ((left < 5)); then
    said='left out, no time'
  else
    timeout --kill-after=5 $((limit < left ? limit : left)) "$@" >"$record/$name.txt" 2>"$record/$name.log" &
    child=$!
    wait "$child" || code=$?
    child=''
    case $code in
      0) said="done in $((SECONDS - began)) s" ;;
      124 | 137) said="CUT after $((SECONDS - began)) s; $name.txt has what came before" ;;
      *)
        said="FAILED with $code after $((SECONDS - began)) s:"
        said+=" $({ grep -E '^[[:alpha:]_.]*(Error|Diverged):' "$record/$name.log" || cat "$record/$name.log"; } | tail -n 1 | cut -c 1-200)"
        ;;
    esac
  fi
  echo "$name: $said" | tee -a "$record/stages.txt"
  keep
}
measure() { stage "$1" "$2" "$python" -m "benchmarks.$3" --device "$device" "${@:4}"; }
batch_of() { case $1 in small*) echo 128 ;; base) echo 64 ;; large) echo 32 ;; *) echo 16 ;; esac; }
small=(--preset "$first") seconds=3 batches="128 512 1024" rounds=3
[ "$device" = cuda ] || { small+=(--layers 2) seconds=0.3 batches="8 16" rounds=1; }

[ ! -f "$carry/cache.tgz" ] || tar -xzf "$carry/cache.tgz" -C "$work"
if compgen -G '.whl/*.whl' >/dev/null; then
  "$python" -m pip install -q --no-index --no-deps --no-compile --upgrade --target "$work/site" .whl/*.whl && PYTHONPATH+=:$work/site
fi
data=(${CHANGE:+--change "$CHANGE"})
if [ -d "${DATA:-/nowhere}" ]; then
  data+=(--data "$DATA")
elif [ -n "${DATA:-}" ]; then
  mkdir "$work/data" && tar -xf "$DATA" -C "$work/data" --strip-components=1 && data+=(--data "$work/data") || exit 66
fi

case $call in
  0)
    measure environment 60 machine_facts
    if "$python" -c 'import tyro' 2>/dev/null; then stage doctor 60 "$python" -m electra_trainer doctor; fi
    stage first 330 "$python" -m benchmarks.gpu_first run "$work/run" --device "$device" --preset "$first" ${DATA:+--data "${data[-1]}"}
    [ "$first" = tiny ] || measure speed 300 speed --preset "$first" --batch "$(batch_of "$first")" --rounds 1 \
      --systems electra-trainer,transformers-bf16-compiled --json
    "$python" -m benchmarks.gpu_first page "$record" >"$out/page.md"
    ;;
  1)
    measure environment 150 machine_facts
    measure parity 200 parity "${small[@]}"
    stage tests 280 "$python" -m pytest tests/gpu/test_on_a_card.py -m gpu -o addopts= --import-mode=importlib -p no:cacheprovider -q -rA
    ;;
  2)
    measure "ways-$first" 150 gpu_steps ways --preset "$first" --batch "$(batch_of "$first")" --seconds $seconds
    for preset in "${presets[@]}"; do measure "profile-$preset" 60 gpu_steps profile --preset "$preset" --batch "$(batch_of "$preset")" --seconds $seconds; done
    # shellcheck disable=SC2086
    measure batches 80 gpu_steps batches --preset "$first" --batch $batches --seconds $seconds
    measure deterministic 60 gpu_steps deterministic --preset "$first" --batch "$(batch_of "$first")" --seconds $seconds
    for preset in "${presets[@]:1}"; do
      measure "ways-$preset" 120 gpu_steps ways --preset "$preset" --batch "$(batch_of "$preset")" --seconds $seconds
    done
    ;;
  3)
    systems=electra-trainer,transformers-bf16,transformers-bf16-compiled,transformers-fp32
    for preset in "${presets[@]}"; do # tiny has another objective than the peers
      [ "$preset" = tiny ] || measure "speed-$preset" 150 speed --preset "$preset" --batch "$(batch_of "$preset")" --rounds $rounds --systems $systems --json
    done
    if "$python" -c 'import tyro' 2>/dev/null; then stage doctor 30 "$python" -m electra_trainer doctor --json; fi
    for part in 1 2; do # stopped by a signal, then the same again
      measure "run-$part" $((60 + 60 * part)) gpu_run "$work/run" --preset "$first" --seconds $((budget * 60 / 570)) --stop-after $((part * budget * 30 / 570)) "${data[@]}"
    done
    ;;
  4)
    measure parity 558 parity "${small[@]}" --arms
    ;;
  train)
    if compgen -G "$carry/carried.*" >/dev/null; then
      stage unpack 60 "$python" -m benchmarks.gpu_carry unpack "$carry" "$work/carried"
      data+=(--continue-from "$work/carried")
    fi
    most=$((budget - SECONDS - 110 * budget / 570)) # packing needs the rest
    limit=$(awk "BEGIN { print 60 * $2 < $most ? 60 * $2 : $most }")
    measure train 540 gpu_run "$work/run" --preset "$first" --steps "${STEPS:-100000}" --stop-after "$limit" "${data[@]}"
    stage pack 90 "$python" -m benchmarks.gpu_carry pack "$work/run/run" "$out"
    ;;
esac
