"""What somebody may have meant who typed an unknown word."""

from __future__ import annotations

import difflib
from collections.abc import Collection

SYNONYMS = {
    **dict.fromkeys(("lr", "learning_rate", "actor_lr"), ("policy.lr", "sft.lr")),
    **dict.fromkeys(("beta", "kl", "kl_beta", "kl_loss_coef"), ("algo.kl_coef",)),
    **dict.fromkeys(("batch_size", "train_batch_size"), ("trainer.prompts", "trainer.samples")),
    **dict.fromkeys(("num_generations", "group_size", "rollout_n"), ("trainer.samples",)),
    **dict.fromkeys(("gpu_memory_utilization", "gpu_memory"), ("engine.kv_cache_gib",)),
    **dict.fromkeys(("model", "model_path", "model_name"), ("policy.path", "policy")),
    **dict.fromkeys(("max_new_tokens", "max_response_length"), ("engine.max_answer_tokens",)),
    **dict.fromkeys(("max_model_len", "max_length", "max_seq_len"), ("engine.max_tokens",)),
    **dict.fromkeys(("clip", "clip_range", "epsilon", "cliprange"), ("algo.clip_low", "algo.clip_high")),
    **dict.fromkeys(("epochs", "num_epochs"), ("trainer.steps", "sft.epochs")),
    **dict.fromkeys(("dataset", "data", "data_path", "train_files"), ("tasks.source", "sft.data")),
    **{"top_p": ("engine.top_p",), "top_k": ("engine.top_k",), "min_p": ("engine.min_p",)},
    "entropy": ("algo.entropy_coef",),
    "lr_warmup": ("trainer.lr_warmup", "sft.lr_warmup_share"),
}
"""What people type who come from other programs, by the last part of the key, and what it is called here."""
ABSENT = {
    "resume": "the same command resumes a run, or run_dir=FOLDER",
}
"""What is not there under any name, and what is instead."""


def nearest(word: str, words: Collection[str]) -> str:
    """What may have been meant. A synonym or an equal last part goes before what is spelt alike.

    >>> nearest("trainer.lr", ["policy.lr", "trainer.lr_end"]), nearest("trainer.temperature", ["engine.temperature"])
    ("; did you mean 'policy.lr'?", "; did you mean 'engine.temperature'?")
    """
    leaf = word.rpartition(".")[2]
    known = [key for key in SYNONYMS.get(leaf, ()) if key in words]
    if not known and leaf in ABSENT and "trainer.steps" in words:
        return f"; {ABSENT[leaf]}"
    same = [
        key for key in words if "." in key and key.rpartition(".")[2] == leaf and not leaf.startswith(("min", "max"))
    ]
    best = known or (same if len(same) == 1 else []) or difflib.get_close_matches(word, list(words), n=1, cutoff=0.5)
    return f"; did you mean {' or '.join(map(repr, best))}?" if best else ""
