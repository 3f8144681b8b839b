"""How a seed is derived from names: a new draw takes `seed_of`.

Older draws stay as they are, since another derivation would draw something else: weights (`weight_seed`), the order of
a run's tasks and the uniforms of its filters (`training.seeds`), tasks and sets (`random.Random` of a text), inputs of
tasks (`tasks.seeding`), and the judge's secrets (`judge.trusted.cases`).
"""

from __future__ import annotations

import hashlib
import zlib


def seed_of(*names: int | str) -> int:
    """63 bits that follow from these names, the same on every machine: SHA-256.

    >>> seed_of(0, 3, 1, 2)
    6648990296512952337
    """
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def weight_seed(seed: int, name: str) -> int:
    """32 bits for the weight of this name in a policy that is drawn from `seed`: CRC-32.

    >>> weight_seed(0, "lm_head.weight")
    2333845280
    """
    return zlib.crc32(f"{seed}/{name}".encode())
