"""A checkpoint's policy as a Hugging Face folder in bfloat16, which transformers, vLLM and evaluate.py load.

    python -m drkernel.training.export RUN/checkpoints/step_40 OUT
    python -m drkernel.training.export RUN/checkpoints/best OUT       the one that RUN/best.json names
    python -m drkernel.training.export RUN/checkpoints/best OUT --adapter     of LoRA the adapters alone, for peft

One process reads what any number of ranks wrote, on a CPU, and holds the weights in bfloat16 and nothing else of them.
Config and tokenizer come from the policy that the run began with, as RUN/config.yaml names it. Adapters are added to
the weights that they were trained on, which must be there with the digest that the checkpoint states.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
import yaml
from torch import Tensor
from torch.distributed.checkpoint import HuggingFaceStorageReader
from torch.distributed.checkpoint.api import CheckpointException
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from drkernel.config import LoraConfig
from drkernel.config.command_line import override
from drkernel.policy import transfer
from drkernel.policy.lora import add_adapters, is_adapter, write_adapters
from drkernel.policy.model import Base, Policy, load_tokenizer
from drkernel.training import checkpoint
from drkernel.training.loading import RANDOM, base_digest
from drkernel.training.ranks import Ranks
from drkernel.training.run import BEST
from drkernel.training.sharding import parameters
from drkernel.types import DrKernelError


def export(
    source: Path,
    folder: Path,
    origin: str | None = None,
    dtype: torch.dtype = torch.bfloat16,
    adapter: bool = False,
) -> str:
    """Write the policy of the checkpoint `source` to `folder`, or the adapters alone. Returns a line for the user.

    origin: the folder or hub id that config, tokenizer and the base of adapters are taken from; None: what the run's
    config.yaml says.
    Raises DrKernelError where the checkpoint is missing or damaged, does not fit, or where `folder` is not empty.
    """
    source = _checkpoint(source)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DrKernelError(f"{folder}: found something there already, expected no such folder or an empty one")
    chosen = {"path": origin} if origin else {}
    run = _policy_of_run(source.parents[1]) | chosen
    origin = str(run["path"]).removeprefix(RANDOM)
    hint = "choose another checkpoint"
    description = checkpoint.described(source, hint)
    if adapter and not description["base"]:
        raise DrKernelError(f"{source}: found all weights, expected adapters for --adapter; leave it out")
    checkpoint.verify(source, list(description["files"].items()), hint)
    if description["base"]:
        settings, base = _lora(source, run["lora"]), Base(str(run["path"]), description["base"]["digest"])
        size = (_export_adapters if adapter else _export_merged)(source, folder, settings, base, dtype)
    else:
        size = _export_whole(source, folder, origin, dtype)
    what = "parameters of adapters" if adapter else "parameters"
    said = f"{folder}: {size:,} {what} of {source.name} in {str(torch.float32 if adapter else dtype).partition('.')[2]}"
    path = override("policy.path", str(folder))
    return said if adapter else f"{said}; python evaluate.py {path} policy.prompts={run['prompts']}"


def _export_whole(source: Path, folder: Path, origin: str, dtype: torch.dtype) -> int:
    """Returns the number of parameters, as the others do."""
    tokenizer, model = load_tokenizer(origin), _empty(origin)
    weights = {name: torch.empty(weight.shape, dtype=dtype) for name, weight in parameters(Policy(model))}
    _read(source, weights, origin)
    model.to(dtype).save_pretrained(folder, state_dict={n.removeprefix("model."): w for n, w in weights.items()})
    tokenizer.save_pretrained(folder)
    return sum(weight.numel() for weight in weights.values())


def _export_adapters(source: Path, folder: Path, settings: LoraConfig, base: Base, dtype: torch.dtype) -> int:
    """In float32, as they were trained; the base's weights are not read."""
    policy = add_adapters(Policy(_empty(base.source.removeprefix(RANDOM))), settings)
    policy.base = base
    weights = {name: torch.empty(weight.shape) for name, weight in parameters(policy) if is_adapter(name)}
    _read(source, weights, f"the adapters of {base.source}")
    write_adapters(policy, folder, {name.removeprefix("model."): weight for name, weight in weights.items()})
    return sum(weight.numel() for weight in weights.values())


def _export_merged(source: Path, folder: Path, settings: LoraConfig, base: Base, dtype: torch.dtype) -> int:
    tokenizer, policy = load_tokenizer(base.source.removeprefix(RANDOM)), _based_policy(settings, base)
    weights = {name: weight.detach() for name, weight in parameters(policy) if is_adapter(name)}
    _read(source, weights, f"the adapters of {base.source}")
    transfer.export(policy, folder, tokenizer, dtype)
    return sum(weight.numel() for name, weight in parameters(policy) if not is_adapter(name))


def _based_policy(settings: LoraConfig, base: Base) -> Policy:
    """The base with adapters that are not set, in the type in which it was trained with: bfloat16 on GPUs."""
    if base.source.startswith(RANDOM):
        raise DrKernelError(f"{base.source}: found random weights as the base of adapters, expected a folder or hub id")
    found = ""
    for dtype in (torch.bfloat16, torch.float32):
        policy = add_adapters(Policy.load(base.source, dtype), settings)
        if (found := base_digest(policy, Ranks())) == base.digest:
            return policy
    raise DrKernelError(
        f"{base.source}: found other weights (digest {found}) than the adapters were trained on ({base.digest}); "
        "name their base with --policy"
    )


def _lora(source: Path, settings: dict[str, Any]) -> LoraConfig:
    try:
        return LoraConfig(**settings)
    except TypeError as error:
        raise DrKernelError(f"{source.parents[1] / 'config.yaml'}: policy.lora: {error}") from None


def _checkpoint(path: Path) -> Path:
    """The folder of a checkpoint by its path; `best`, or a step without its leading zeros, will do."""
    step = re.fullmatch(r"(?:step_)?(\d+)", path.name)
    if path.name == "best" and not path.exists():
        named = path.parents[1] / BEST
        if not named.exists():
            raise DrKernelError(f"{named}: not found; expected a run with trainer.validate_every that has validated")
        path = path.parents[1] / json.loads(named.read_text(encoding="utf-8"))["checkpoint"]
    elif step and not path.exists():
        path = path.with_name(checkpoint.name_of(int(step[1])))
    if not (path / "COMPLETE").exists():
        folders = [path, path / "checkpoints", path.parent]  # of checkpoints; a run; what is beside this one
        folder = next(filter(checkpoint.complete, folders), path.parent)
        known = ", ".join(found.name for found in checkpoint.complete(folder)) or "none"
        raise DrKernelError(f"{path}: found no whole checkpoint there; expected one of {folder}: {known}")
    return path.resolve()


def _policy_of_run(run: Path) -> dict[str, Any]:
    path = run / "config.yaml"
    try:
        policy = yaml.safe_load(path.read_text(encoding="utf-8"))["policy"]
        return {"path": policy["path"], "prompts": policy["prompts"], "lora": policy.get("lora", {})}
    except (OSError, KeyError, TypeError, yaml.YAMLError) as error:
        raise DrKernelError(
            f"{path}: found no policy in it ({checkpoint.one_line(error)}); expected policy.path and policy.prompts"
        ) from None


def _empty(origin: str) -> Any:
    """The model of a folder or hub id, without storage."""
    try:
        config = AutoConfig.from_pretrained(origin)
    except Exception as error:  # transformers raises a dozen unrelated types
        reason = checkpoint.one_line(error)
        raise DrKernelError(
            f"policy {origin!r}: no config to be had ({reason}); expected a folder or hub id, name it with --policy"
        ) from None
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    if (Path(origin) / "generation_config.json").exists():
        model.generation_config = GenerationConfig.from_pretrained(origin)
    return model


def _read(source: Path, weights: dict[str, Tensor], origin: str) -> None:
    """Fill `weights` from what the ranks wrote; what is stored is cast to their type."""
    stored = {f"policy.{name}": weight for name, weight in weights.items()}
    try:
        with checkpoint.without_warning():
            dcp.load(stored, storage_reader=HuggingFaceStorageReader(str(source / "tensors")), no_dist=True)
    except (Exception, CheckpointException) as error:
        reason = checkpoint.one_line(error)
        raise DrKernelError(f"{source}: does not hold the weights of {origin} ({reason})") from None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m drkernel.training.export", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("checkpoint", type=Path, help="RUN/checkpoints/step_40, or RUN/checkpoints/best")
    parser.add_argument("folder", type=Path, help="where the Hugging Face folder goes")
    parser.add_argument("--policy", help="where config and tokenizer come from, if not from the run's policy.path")
    parser.add_argument(
        "--adapter", action="store_true", help="of a run with LoRA the adapters alone, in peft's format"
    )
    given = parser.parse_args(arguments)
    try:
        print(export(given.checkpoint, given.folder, given.policy, adapter=given.adapter))
    except DrKernelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
