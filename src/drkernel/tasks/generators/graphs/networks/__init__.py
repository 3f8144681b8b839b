"""Networks that people would put together, each a function that adds its layers to a graph.

    layers.py         inputs and layers that all are made of
    small.py          a few layers
    deep.py           several blocks in a row, encoders and decoders, transformers
    stacks.py         many layers, and modules that answers leave in PyTorch
    wild.py           layers, branches, gates and joins in random order
    wild_programs.py  statistics, masks and products of tensors in random order

To add one: write its function in the file of its kind, and a line in the table at the end of that file.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from drkernel.tasks.generators.graphs.graph import Builder
from drkernel.tasks.generators.graphs.networks.deep import DEEP
from drkernel.tasks.generators.graphs.networks.small import SMALL
from drkernel.tasks.generators.graphs.networks.stacks import STACKS
from drkernel.tasks.generators.graphs.networks.wild import WILD
from drkernel.tasks.generators.graphs.networks.wild_programs import wild_programs

NETWORKS: dict[str, Callable[[Builder, random.Random], str]] = {
    **DEEP,
    **STACKS,
    **WILD,
    wild_programs.__name__: wild_programs,
    **SMALL,
}
NARROW = ("mlp", "deep_mlp", "autoencoder", "feed_forward", "gated_unit", "one_head", "plain_attention")
"""Networks that there are in 16 bits, too."""
