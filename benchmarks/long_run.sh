#!/bin/bash
# A run of 100 steps of the shipped policy on one GPU with measured times: validated every 10 steps, killed once, resumed with another
# micro-batch; its best checkpoint exported and evaluated.
#
#   bash benchmarks/long_run.sh OUT [overrides of train.py and evaluate.py]      (engine=graphs judge.share=true)
#
# The same command goes on where it was stopped. Of the environment:
#
#   STEPS=100       steps, a multiple of 10           KILL_S=240   seconds after which the first start is killed (SIGKILL)
#   LIMIT_S         seconds for training in this call: SIGTERM then makes a checkpoint
#   TRAIN="..."     further overrides of train.py     PYTHON       what runs Python (python)
out=${1:?where to write} python=${PYTHON:-python}
shift
[ $# -gt 0 ] || set -- engine=graphs judge.share=true
export PYTHONPATH="$PWD/src:$PWD:$PYTHONPATH" HF_HUB_OFFLINE=1 VLLM_ENABLE_V1_MULTIPROCESSING=0
every=$((${STEPS:-100} / 10))
settings=(trainer.steps="${STEPS:-100}" trainer.validate_every="$every" trainer.save_every="$every" policy.lr=1e-4 trainer.prompts=6)
# shellcheck disable=SC2206  # TRAIN is a list of words
settings+=(tasks.eval_count=24 logger=none $TRAIN)

train() { # of timeout: signal and seconds; micro-batch; overrides
    timeout -s "$1" -k 30 "$2" "$python" train.py hydra.run.dir="$out/run" trainer.micro_batch_tokens="$3" "${settings[@]}" "${@:4}"
}

if [ ! -e "$out/killed" ]; then
    mkdir -p "$out"
    train KILL "${KILL_S:-240}" 8192 "$@"
    date >"$out/killed"
fi
train TERM $((${LIMIT_S:-100000} - SECONDS)) 16384 "$@" || exit
"$python" -m drkernel.training.export "$out/run/checkpoints/best" "$out/best" || exit
"$python" evaluate.py hydra.run.dir="$out/evaluation" policy.path="$out/best" scaling=single scaling.trials=4 tasks.eval_count=24 "$@"
