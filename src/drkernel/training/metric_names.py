"""What a step of reinforcement learning writes to metrics.jsonl: the table of docs/method.md is this registry."""

from __future__ import annotations

from fnmatch import fnmatchcase

METRICS: dict[str, str] = {
    **dict.fromkeys(
        ("step", "tasks_drawn", "skipped_total"), "steps taken, tasks drawn, and steps without any update so far"
    ),
    **dict.fromkeys(("reward", "correct", "fast@1", "fast@1.2", "hack", "lazy"), "means over turns"),
    **dict.fromkeys(("speedup", "coverage"), "means over correct turns"),
    "trained/*": "the same eight, of the turns that group and turn filters keep",
    "groups/played": "groups rolled out",
    "groups/refilled": "the share of them that were drawn in place of dropped ones",
    "groups/all_solved": "share of groups whose last turns are all correct",
    "groups/none_solved": "share of groups with no correct turn at all",
    "groups/with_signal": "share of groups in which rewards differ",
    "groups/dropped": "share of groups that group filters dropped",
    "groups/surplus": "share of groups that could train, but were drawn beyond what the step needs (`oversample`)",
    **dict.fromkeys(
        ("verdict/*", "reason/*"),
        "shares of turns by status and reason ([what they mean](../src/drkernel/judge/README.md#what-it-decides); "
        "`no_code`, where a completion has no submission, is the rollout's own)",
    ),
    "no_code": "share of turns without a submission",
    "truncated": "share of turns that were cut at `engine.max_answer_tokens`",
    "overlong_penalty": "what long completions cost, mean over turns, if there is a penalty; `reward` is less that",
    **dict.fromkeys(("length/completion", "length/completion_max"), "tokens of a completion, mean and largest"),
    **dict.fromkeys(
        ("length/trajectory", "length/trajectory_max"), "tokens of a trajectory, prompts and feedback included"
    ),
    "turns": "turns per trajectory",
    "rollouts": "trajectories rolled out",
    **dict.fromkeys(
        ("judge/failures", "judge/*"), "trajectories on which the judge failed, and why; no other figure counts them"
    ),
    "engine_gap": "mean difference of log-probabilities, engine and trainer, after the sync, nats per token; "
    "of engines with kernels of their own",
    "advantages/alone": "the share of the turns that train that no other turn of their group is compared with",
    "zero_variance/kept": "share of groups whose rewards differ enough",
    "prs/kept": "share of rewarded turns that PRS keeps",
    "overlong/kept": "share of turns that were not cut and come before none that was",
    "mrs/kept": "share of sampled tokens that MRS keeps",
    "kept": "share of all sampled tokens of the batch that train",
    **dict.fromkeys(
        ("mismatch/delta", "mismatch/abs_delta"),
        "`log pi_train - log pi_engine`, mean and mean size over sampled tokens, with MRS",
    ),
    "mismatch/kl": "KL of the engine's distribution to the trainer's (k3)",
    "mismatch/ess": "effective share of the sample under token ratios; 1 where engine and trainer agree",
    **dict.fromkeys(
        ("mismatch/vetoed", "mismatch/not_finite"),
        "shares of sampled tokens in vetoed turns, and whose ratio is not finite",
    ),
    "loss": "of the update, mean over its optimizer steps with a finite one, as are `entropy` and `grad_norm`",
    "entropy": "nats per sampled token",
    "grad_norm": "of the gradient before it is clipped",
    "lr": "learning rate",
    "tokens": "tokens that the update went through",
    "tokens_per_second": "tokens that the update went through per second, over all GPUs",
    "mfu": "operations of the update's forward and backward as a share of the GPUs' peak, where that is known "
    "(`src/drkernel/training/flops.py`)",
    "memory/peak_gib": "the most that torch had allocated on the first rank's GPU in the step",
    "skipped": "optimizer steps that were skipped, of `updates`",
    "updates": "optimizer steps of the update: at most `algo.updates`, one per row",
    **dict.fromkeys(
        ("policy/clipped_low", "policy/clipped_high", "policy/clipped_dual"),
        "shares of tokens that each clip holds back; 0 with `algo.updates=1`",
    ),
    "policy/kl": "KL of the policy before the step to the one that learns (k3); 0 with `algo.updates=1`",
    "policy/kl_to_reference": "KL of the policy to the one that the run began with (k3), with `algo.kl_coef`",
    "validation/*": "of held-out tasks, every few steps ([runs.md](runs.md#validation))",
    "time/*": "seconds",
}
"""Name -> what it is; `*` stands for any ending."""

WALL_CLOCK = ("time/*", "tokens_per_second", "mfu", "memory/*")
"""Metrics that differ from run to run; all others repeat bit for bit on the CPU."""


def repeats(name: str) -> bool:
    """Whether a metric repeats.

    >>> repeats("reward"), repeats("time/update")
    (True, False)
    """
    return not any(fnmatchcase(name, measured) for measured in WALL_CLOCK)


def is_known(name: str) -> bool:
    """Whether METRICS says what a metric is.

    >>> is_known("reason/lazy"), is_known("lazy"), is_known("lazyness")
    (True, True, False)
    """
    return any(fnmatchcase(name, known) for known in METRICS)


def table() -> str:
    """METRICS as the table of docs/method.md: a row for all names that share a text."""
    rows: dict[str, list[str]] = {}
    for name, text in METRICS.items():
        rows.setdefault(text, []).append(f"`{name}`")
    return "\n".join(
        ["| metric | what |", "|---|---|", *(f"| {', '.join(rows[text])} | {text} |" for text in rows), ""]
    )
