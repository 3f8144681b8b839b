#!/bin/bash
# A run of 100 steps of the shipped policy on one GPU with measured times: validated every 10 steps, killed once, resumed with another
# micro-batch; its best checkpoint exported and evaluated.
#
#   bash benchmarks/long_run.sh OUT [overrides of train.py and evaluate.py]      (engine=graphs judge.share=true)
#
# The same command goes on where it was stopped. Of the environment:
#
#   STEPS=100       steps, a multiple of 10
#   KILL_S=20       seconds after the first checkpoint of a step, when the first start is killed
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

train() { # micro-batch; what comes before the command (exec: the process that & starts is this one); overrides
    ${2:+$2} "$python" train.py hydra.run.dir="$out/run" trainer.micro_batch_tokens="$1" "${settings[@]}" "${@:3}"
}

if [ ! -e "$out/killed" ]; then
    mkdir -p "$out"
    train 8192 exec "$@" &
    until compgen -G "$out/run/checkpoints/step_*[1-9]*" >/dev/null || ! kill -0 $! 2>/dev/null; do sleep 1; done
    sleep "${KILL_S:-20}"
    kill -KILL $! && date >"$out/killed" || exit # it ended before
    wait
fi
train 16384 "timeout -s TERM -k 30 $((${LIMIT_S:-100000} - SECONDS))" "$@" || exit
"$python" -m drkernel.training.export "$out/run/checkpoints/best" "$out/best" || exit
"$python" evaluate.py hydra.run.dir="$out/evaluation" policy.path="$out/best" scaling=single scaling.trials=4 tasks.eval_count=24 "$@"
