#!/usr/bin/env bash
# What is wanted from a GPU, in a quarter of an hour, for machines that end a command after ten minutes and forget everything between two:
#
#   gpu.sh prove    The tests that need a card, a run that is killed and resumes to the bit, what each optimisation gains, tokens a second
#                   beside transformers, and where the time goes
#   gpu.sh train    The first preset by its own recipe, over the time that is left; held-out metrics, and the weights in few bytes
#   gpu.sh quarter  One after the other
#
# A call ends within BUDGET seconds (310, 450, 760). OUT, the folder that comes back, then has record.tgz (what was measured, written again
# after every stage), cache.tgz (compiled kernels, the speed) and after `train` carried.* (the run). The next call reads the last two from
# CARRY (.carry); `train` continues a carried run. A stage that fails or runs over is named in stages.txt, and the next one begins. Wheels in
# .whl are installed.
#
#   PYTHON=python3  DEVICE=cuda  PRESETS="small base large"  SCRATCH=/tmp/electra-gpu
#   TEXT="files"  VOCAB=vocab.txt  are prepared there, with the text of earlier calls on this machine (the documentation of the packages
#   there if not given); or DATA=rows that `electra prepare` made, a folder or a compressed tar of one
#   WAYS="settings to compare, see gpu_steps.py"  STEPS=of the run (what fits)  REVISION=what `git describe` says, where .git does not travel
#
# DEVICE=cpu PRESETS=tiny BUDGET=60 rehearses a call.
set -uo pipefail
cd "$(dirname "$0")/.."
usage='usage: OUT=folder benchmarks/gpu.sh prove|train|quarter'
call=${1:?$usage}
case $call in
  prove) budget=${BUDGET:-310} ;;
  train) budget=${BUDGET:-450} ;;
  quarter) budget=${BUDGET:-760} ;;
  *) echo "$usage" >&2 && exit 78 ;;
esac
device=${DEVICE:-cuda} python=${PYTHON:-python3} carry=$(realpath -m "${CARRY:-.carry}")
read -r -a presets <<<"${PRESETS:-small base large}"
first=${presets[0]}
ways=(flash stream weights heads mix-order pdl combo flash+stream+weights+heads+mix-order)
ways=("${ways[@]/#/ELECTRA_GPU_TRY=}")
read -r -a ways <<<"${WAYS:-${ways[*]}}"
mkdir -p "${OUT:?$usage}"
out=$(cd "$OUT" && pwd)
work=${SCRATCH:-/tmp/electra-gpu} # the same in every call: compiled kernels are found by their paths
record=$work/record/$call
rm -rf "$work"/{record,run,data,carried,site,whole,killed,export,go} && mkdir -p "$record" "$work"/{text,cache/triton} && : >"$record/stages.txt"
declare -A names=() starts=() # by process

export REVISION=${REVISION:-$(git describe --always --dirty 2>/dev/null || echo unknown)}
export PYTHONPATH="$PWD/src:$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
export TRITON_CACHE_DIR=$work/cache/triton TORCHINDUCTOR_CACHE_DIR=$work/cache/inductor

keep() { # what has been measured so far
  [ ! -d "$work/run" ] || (cd "$work/run" && mkdir -p "$record/run" && cp -r ./*.json ./*.jsonl log.txt "$record/run" 2>/dev/null)
  tar -czf "$work/record.tgz" -C "$work" record && mv "$work/record.tgz" "$out/record.tgz"
}
finish() {
  trap - EXIT
  ((${#names[@]} == 0)) || kill "${!names[@]}" 2>/dev/null
  keep
  for part in cache cache/triton; do # what PyTorch's compiler leaves may be too much to come back
    timeout 10 tar -czf "$work/cache.tgz" -C "$work" --ignore-failed-read "$part" && [ -z "$(find "$work/cache.tgz" -size +15M)" ] || continue
    mv "$work/cache.tgz" "$out" && break
  done
  cat "$record/stages.txt"
}
trap finish EXIT
trap 'exit 143' TERM INT

# Limits are shares of the time that is left: what a stage does not need is for those after it.
open() { rest=$1 ends=$2; } # what the limits of the coming stages add up to, and when they have to be over
allowed() { echo $(((ends - SECONDS) * $1 / (rest > $1 ? rest : $1))); }
# begin NAME LIMIT COMMAND...: standard output to NAME.txt, the rest to NAME.log; settle LIMIT [NAME] waits for all others that began
begin() {
  local name=$1 limit
  limit=$(allowed "$2")
  if ((limit < 3)); then
    echo "$name: left out, no time" | tee -a "$record/stages.txt"
  else
    timeout --kill-after=15 "$limit" "${@:3}" >"$record/$name.txt" 2>"$record/$name.log" &
    names[$!]=$name starts[$!]=$SECONDS
  fi
}
settle() {
  local child code name took said
  while [ -n "$(printf '%s\n' "${names[@]}" | grep -vx "${2:-}")" ]; do
    code=0
    wait -n -p child "${!names[@]}" || code=$?
    name=${names[$child]} took=$((SECONDS - starts[$child]))
    unset "names[$child]"
    case $code in
      0) said="done in $took s" ;;
      124 | 137) said="CUT after $took s; $name.txt has what came before" ;;
      *)
        said="FAILED with $code after $took s:"
        said+=" $({ grep -E '^[[:alpha:]_.]*(Error|Diverged):' "$record/$name.log" || cat "$record/$name.log"; } | tail -n 1 | cut -c 1-200)"
        ;;
    esac
    echo "$name: $said" | tee -a "$record/stages.txt"
    keep
  done
  rest=$((rest - $1))
}
measure() { begin "$1" "$2" "$python" -m "benchmarks.$3" --device "$device" "${@:4}"; }
electra() { "$python" -m electra_trainer "$@"; }
in_bash() { begin "$1" "$2" bash -c "$(declare -p python device first work rows count); $(declare -f electra "$1"); $1"; }

[ ! -f "$carry/cache.tgz" ] || tar -xzf "$carry/cache.tgz" -C "$work"
if compgen -G '.whl/*.whl' >/dev/null; then
  "$python" -m pip install -q --no-index --no-deps --no-compile --upgrade --target "$work/site" .whl/*.whl && PYTHONPATH+=:$work/site
fi
"$python" -c 'import tyro' || { echo 'tyro is missing: pip install tyro, or put its wheel and those that it needs into .whl' >&2 && exit 78; }

rows=$work/rows
if [ -d "${DATA:-/nowhere}" ]; then
  rows=$DATA
elif [ -n "${DATA:-}" ]; then
  rows=$work/data && mkdir "$rows" && tar -xf "$DATA" -C "$rows" --strip-components=1 || exit 66
fi
for file in ${TEXT:-}; do cp "$file" "$work/text/${file//\//_}" || exit 66; done
few=() seconds=2 count=400 systems=electra-trainer,transformers-bf16-compiled,transformers-bf16-tuned rounds=2
[ "$device" = cuda ] || { few=(--layers 1) seconds=0.1 count=16 systems=electra-trainer,transformers-bf16 rounds=1; }
batches() { case $1 in small*) echo 128 ;; base) echo 64 256 ;; mini) echo 32 ;; *) echo 64 ;; esac; }
read -r -a batch <<<"$(batches "$first")"

prepare() {
  local text=("$work"/text/*) vocabulary=${VOCAB:-$work/vocabulary}
  [ -e "${text[0]}" ] || text=(docstrings)
  [ -e "$vocabulary" ] || electra tokenizer "${text[@]}" --vocab-size 16384 --out "$vocabulary" || return
  text+=(--tokenizer "$vocabulary" --out "$rows")
  electra prepare "${text[@]}" || electra prepare "${text[@]}" --overwrite
}

resume() { # SIGKILL after a checkpoint that is not the first, and the same command again: a run that was left alone has the same bytes
  local train=("$python" -m electra_trainer pretrain "$rows" --preset "$first" --device "$device" --deterministic) whole killed name
  train+=(--steps "$count" --checkpoint.every $((count / 4)))
  "${train[@]}" --out "$work/whole" &
  whole=$!
  "${train[@]}" --out "$work/killed" &
  killed=$!
  until compgen -G "$work/killed/checkpoints/step-*[1-9]*" >/dev/null || ! kill -0 $killed 2>/dev/null; do sleep 0.1; done
  kill -9 $killed
  "${train[@]}" --out "$work/killed" && wait $whole && grep -h resuming "$work/killed/log.txt" || return
  for name in weights optimizer; do
    cmp "$work"/{whole,killed}/checkpoints/"step-$(printf %08d "$count")/$name.safetensors" || return
  done
  electra export "$work/killed" --out "$work/export"
}

prove() {
  local asked best='' preset workers=()
  measure environment 25 machine_facts
  [ "$rows" != "$work/rows" ] || in_bash prepare 25
  settle 25

  [ "$device" = cuda ] && "$python" -c 'import xdist' 2>/dev/null && workers=(-n 3)
  begin tests 90 "$python" -m pytest tests/gpu/test_on_a_card.py -m gpu -o addopts= --import-mode=importlib -p no:cacheprovider -q -rA "${workers[@]}"
  measure parity 90 parity --preset "$first" "${few[@]}"
  in_bash resume 90
  for preset in "${presets[@]}"; do # compiled here, timed below
    # shellcheck disable=SC2046
    measure "warm-$preset" 90 gpu_steps ways --preset "$preset" --batch $(batches "$preset") --layers 1 --seconds 0.1 --ways '' "${ways[@]}"
  done
  measure speed 130 speed --preset "$first" --batch "${batch[0]}" --rounds "$rounds" --bursts 5 --systems "$systems" --json --after "$work/go"
  settle 90 speed
  touch "$work/go" && settle 40

  measure attention 20 gpu_attention --tokens $((${#few[@]} ? 1024 : 16384)) && settle 20
  measure "ways-$first" 80 gpu_steps ways --preset "$first" --batch "${batch[@]}" "${few[@]}" --seconds "$seconds" --ways '' "${ways[@]}" && settle 80
  best=$(sed -n 's/.*"best": "\([^"]*\)".*/\1/p' "$record/ways-$first.txt" | tail -n 1)
  sed -n 's/.*"default_seconds": \([0-9.e-]*\)}.*/\1/p' "$record/ways-$first.txt" | tail -n 1 >"$work/cache/seconds-$first"
  for preset in "${presets[@]:1}"; do
    # shellcheck disable=SC2046
    measure "ways-$preset" 35 gpu_steps ways --preset "$preset" --batch $(batches "$preset") --seconds "$seconds" --ways '' ${best:+"$best"} && settle 35
  done
  for asked in '' tuning; do
    ELECTRA_GPU_TRY=$asked measure "finetune${asked:+-$asked}" 20 speed --task finetune --preset "$first" --batch 32 --rounds 1 --bursts 3 --systems electra-trainer --json
    settle 20
  done
  # shellcheck disable=SC2086
  [ -z "$best" ] || local -x ${best//,/ }
  measure profile 20 gpu_steps profile --preset "$first" --batch "${batch[0]}" "${few[@]}" --seconds "$seconds" && settle 20
}

train() {
  local words=("$python" -m electra_trainer pretrain "$rows" --preset "$first" --device "$device" --out "$work/run") each steps limit
  [ "$rows" != "$work/rows" ] || { in_bash prepare 35 && settle 35; }
  each=$(cat "$work/cache/seconds-$first" 2>/dev/null) limit=$(allowed 330)
  if compgen -G "$carry/carried.*" >/dev/null; then
    begin unpack 30 "$python" -m benchmarks.gpu_carry unpack "$carry" "$work/carried" && settle 0
    words+=(--continue-from "$work/carried" ${STEPS:+--steps "$STEPS"})
  else # of what `prove` measured, less what a run does beside its steps
    steps=${STEPS:-${each:+$(awk "BEGIN { print int(0.9 * $limit / $each) }")}}
    [ -n "$steps" ] && words+=(--steps "$steps" --checkpoint.every $((steps / 2 + 1))) || words+=(--budget "${limit}s")
  fi
  begin train 330 "${words[@]}" && settle 330
  begin pack 30 "$python" -m benchmarks.gpu_carry pack "$work/run" "$out" && settle 30
  begin held-out 30 "$python" -m electra_trainer evaluate "$work/run" "$rows" --json --device "$device" && settle 30
}

last=$((budget - 15)) # the rest is for packing
case $call in
  prove) open 385 $last && prove ;;
  train) open 425 $last && train ;;
  quarter)
    open 385 $((last * 31 / 76)) && prove
    open 425 $last && train
    ;;
esac
