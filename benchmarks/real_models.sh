#!/bin/bash
# Update steps of real shapes, and the loop with vLLM, with an engine over two GPUs and one step ahead, on two GPUs of 80 GB:
#
#   bash benchmarks/real_models.sh OUT
#
# First GPU: update steps of 0.6B and 1.7B, with AdamW's moments on the GPU and in the host's memory, then of 8B and 4B with LoRA.
# Second GPU meanwhile: the shipped policy with vLLM and all filters, with graphs, with trainer.overlap, with trainer.offload.
# Then both: an engine over two GPUs (engine.tensor_parallel=2), without CUDA graphs and, if there is time, with them. The seed policy
# has 4 heads, 2 of them for keys: two GPUs can share it.
#
# Each run has its own limit, and a run that fails or is too slow stops no other. OUT has a log of each, runs.jsonl with seconds and
# exit codes, and real_models.md, the table of all. Of the environment:
#
#   TOTAL=330     seconds of all together        BOTH=85    of these for the runs on both GPUs
#   GPUS="0 1"    the two GPUs                   PYTHON     what runs Python (python)
#   ONLY=REGEX    the runs whose name matches; others stay as they are in OUT
#   WORKERS       processes of the judge (half of the cores)
#   STEPS=8 GRAPHS_STEPS=6 SHORT_STEPS=3         steps of the run with vLLM, of those with graphs, of the others
#   TIMED=3 LORA_STEPS=2 ROWS_8B=1 ROWS_4B=2     timed update steps; with LoRA, and rows of 32,768 tokens in each
#   DRY=1         everything tiny, on a CPU: shapes `tiny`, transformers as the engine, two steps, longer limits. Of each real command
#                 of train.py plan=true is tried before
out=${1:?where to write}
python=${PYTHON:-python} begun=$(date +%s) deadline=$(($(date +%s) + ${TOTAL:-330}))
workers=${WORKERS:-$((($(nproc) + 1) / 2))} scale=${DRY:+6}
read -r first second <<<"${GPUS:-0 1}"
export PYTHONPATH="$PWD/src:$PWD:$PYTHONPATH"
export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 VLLM_ENABLE_V1_MULTIPROCESSING=0
mkdir -p "$out"
packages='^(torch|triton|vllm|flash-attn-4|transformers) '
{ nvidia-smi -L; "$python" -m pip list | grep -E "$packages"; } >"$out/machine.txt" 2>&1 &

# name, seconds at most, command: run it before `until`, its output in OUT/name.log
run() {
    local name=$1 most=$(($2 * ${scale:-1})) started code
    shift 2
    [[ $name =~ ${ONLY:-.} ]] || return 0
    started=$(date +%s)
    [ $((until - started)) -lt "$most" ] && most=$((until - started))
    if [ "$most" -ge 10 ]; then
        timeout -k 5 "$most" "$@" >"$out/$name.log" 2>&1
        code=$?
    else
        most=0 code=124
        echo "no time left" >"$out/$name.log"
    fi
    printf '{"name": "%s", "began": %d, "seconds": %d, "limit": %d, "exit": %d}\n' \
        "$name" $((started - begun)) $(($(date +%s) - started)) "$most" "$code" | tee -a "$out/runs.jsonl"
}

update() { # name, seconds at most, arguments of update_step.py
    local name=$1 most=$2
    shift 2
    run "$name" "$most" "$python" benchmarks/update_step.py "$out/$name" --warm-ups 1 --timed "${TIMED:-3}" "$@"
}

lora() { # name, seconds at most, arguments of update_step_lora.py
    local name=$1 most=$2
    shift 2
    run "$name" "$most" "$python" benchmarks/update_step_lora.py "$out/$name" --warm-ups 1 --steps "${LORA_STEPS:-2}" "$@"
}

rl() { # name, seconds at most, engine, overrides of train.py
    local name=$1 most=$2 engine=$3 tiny=()
    shift 3
    local sizes=(trainer.prompts=4 trainer.turns=2 trainer.save_every=1000 tasks.eval_count=1 trainer.eval_samples=1)
    local common=(judge=simulated judge.workers="$workers" filters=full logger=none logger.plots=false "${sizes[@]}")
    if [ -n "$DRY" ]; then
        run "$name-plan" "$most" "$python" train.py hydra.run.dir="$out/$name-plan" plan=true engine="$engine" "${common[@]}" "$@"
        engine=transformers tiny=(trainer.steps=2 trainer.prompts=1 trainer.samples=2 filters.zero_variance.max_refills=0)
        tiny+=(engine.slots=4 engine.max_answer_tokens=100 engine.tensor_parallel=1 engine.eager=false)
    fi
    # A run folder that is there would be gone on with.
    [[ $name =~ ${ONLY:-.} ]] && rm -rf "${out:?}/$name"
    run "$name" "$most" "$python" benchmarks/peak_memory.py "$out/$name/peak.json" \
        train.py hydra.run.dir="$out/$name" engine="$engine" "${common[@]}" "$@" "${tiny[@]}"
}

small=0.6b large=1.7b eight=8b four=4b tokens=(32768 16384) rows=32768 compile=:compile
[ -n "$DRY" ] && small=tiny large=tiny eight=tiny four=tiny tokens=(512 256) rows=128 compile=

first_gpu() {
    export CUDA_VISIBLE_DEVICES=$first
    update update-0.6b 110 --shape $small --variants "fsdp:${tokens[0]}$compile"
    update update-1.7b 110 --shape $large --variants "fsdp:${tokens[1]}$compile"
    lora lora-8b 110 --shape $eight --row-tokens $rows --rows "${ROWS_8B:-1}"
    lora lora-4b 100 --shape $four --row-tokens $rows --rows "${ROWS_4B:-2}"
    update offload-0.6b 90 --shape $small --variants "fsdp:${tokens[0]}$compile:offload"
}

second_gpu() {
    local fixed=(filters.zero_variance.max_refills=0 algo.importance_cap=2) # as much work with overlap as without
    export CUDA_VISIBLE_DEVICES=$second
    rl rl-vllm 140 vllm trainer.steps="${STEPS:-8}" engine.kv_cache_gib=8
    rl rl-graphs 80 graphs trainer.steps="${GRAPHS_STEPS:-6}" "${fixed[@]}"
    rl rl-overlap 80 graphs trainer.steps="${GRAPHS_STEPS:-6}" "${fixed[@]}" trainer.overlap=true
    rl rl-offload 60 graphs trainer.steps="${SHORT_STEPS:-3}" "${fixed[@]}" trainer.offload=optimizer
}

both_gpus() {
    local shared=(trainer.gpus=2 engine.tensor_parallel=2 engine.kv_cache_gib=4 trainer.steps="${SHORT_STEPS:-3}")
    export CUDA_VISIBLE_DEVICES=$first,$second
    rl rl-tensor-parallel 100 vllm "${shared[@]}" engine.eager=true
    rl rl-tensor-parallel-graphs 120 vllm "${shared[@]}" engine.eager=false
}

until=$((deadline - ${BOTH:-85} - 10)) # ten seconds for what is killed, and for the table
first_gpu &
second_gpu &
wait
until=$((deadline - 10))
both_gpus
"$python" benchmarks/real_models.py "$out"
