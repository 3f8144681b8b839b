"""What eager PyTorch's operators take on a GPU.

They take what their bytes and products take, times a factor that says how PyTorch's kernels are written (`EAGER`), and
no less than what an H200 took for work that runs one step after the other, or that is small (`_call_us`). Measured one
by one: `benchmarks/eager_operators.py` and `serial_operators.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from drkernel.judge.boundary.aten import TRAINING
from drkernel.judge.boundary.dimensions import (
    ADDS,
    DEPTHWISE,
    EXTREMES,
    GROUPED,
    INTERPOLATIONS,
    MARGINS,
    MASK,
    MOMENTS,
    OUTER,
    PAIRS,
    REDUCTIONS,
    SAMPLERS,
    SCANS,
    SELECTIONS,
    SELECTS_ROWS,
    SOFTMAXES,
    SORTED,
    SORTS,
    TURNED,
)
from drkernel.judge.boundary.op_trace import Row
from drkernel.judge.boundary.sequences import BY_COLUMNS, COLUMNS, RECURRENT
from drkernel.judge.devices.simulated.gpus import Gpu
from drkernel.judge.devices.simulated.rescale import Scale
from drkernel.judge.devices.simulated.traffic import calls_of, largest, stream_s, traffic

CONVOLUTION = 0.59
"""What cuDNN's convolutions in fp32 reach of cuBLAS, with many channels."""

SHORT_INNER, SHORT_WINDOW, SHORT_LOOP = 12, 32, 40
"""Products over K terms take as long as over K + this many: tiles have to be filled before the first one. The second
for convolutions in fp32, the third for loops of tl.dot, which load several tiles ahead."""


SINGLE_US, MASKED_US = 2.6e-6, 4.7e-6
"""For each number of element-wise operators that address each element singly, see Row.accesses; of `masked_fill`."""

NEAREST = tuple(f"{name}{rank}d" for name in ("upsample_nearest", "_upsample_nearest_exact") for rank in (1, 2, 3))

EAGER: dict[str, tuple[int, float]] = {
    "native_layer_norm": (1, 1.4), "native_group_norm": (3, 4.3),
    "native_batch_norm": (1, 1.45), "_native_batch_norm_legit_no_training": (1, 1.45),
    "native_batch_norm" + TRAINING: (2, 3.0), "sum": (1, 1.07), "mean": (1, 1.07), "amax": (1, 1.07), "amin": (1, 1.07),
    "prod": (1, 1.07), "linalg_vector_norm": (1, 1.07), **dict.fromkeys(EXTREMES, (1, 1.2)),
    "logsumexp": (7, 7.8), "mse_loss": (2, 2.05), "smooth_l1_loss": (2, 1.1),
    "huber_loss": (2, 1.1), "binary_cross_entropy": (2, 2.05),
    "binary_cross_entropy_with_logits": (8, 6.4), "rms_norm": (1, 1.13), "tril": (1, 1.35), "triu": (1, 1.35),
    "flip": (1, 1.4), "roll": (1, 2.4),
    "gather": (1, 1.8), "topk": (3, 14.0), "_local_scalar_dense": (9, 1.0),
    **dict.fromkeys(MOMENTS, (1, 2.1)), **dict.fromkeys(SORTS, (6, 19.0)), **dict.fromkeys(SELECTIONS, (1, 36.0)),
    "unique_consecutive": (3, 2.0), "bincount": (6, 14.0), "nonzero": (3, 1.5),
    **dict.fromkeys(("searchsorted", "bucketize"), (1, 3.2)), "renorm": (3, 1.5),
    "isin": (2, 1.0), "isin" + SORTED: (6, 19.0), "embedding_dense_backward": (6, 1.0),
    "segment_reduce": (7, 6.0), "pixel_shuffle": (1, 1.7),
    "_softmax_backward_data": (1, 2.0), "native_layer_norm_backward": (2, 2.4), "constant_pad_nd": (1, 1.85),
    **dict.fromkeys(INTERPOLATIONS, (1, 2.5)), **dict.fromkeys(NEAREST, (1, 2.5)),
    **dict.fromkeys(SCANS, (1, 2.25)), "logcumsumexp": (1, 5.6),
    **{name + OUTER: (1, 1.5) for name in SCANS}, **{name + OUTER: (1, 5.5) for name in SOFTMAXES},
}  # fmt: skip
"""How eager CUDA runs an operator: (kernels, time over what its inputs and outputs alone would take), else (1, 1.0).
What one algorithm does has one price, whatever its name: of the sorts, `sort` was measured; of the scans, sums;
of those that select one number, medians; of interpolations, bilinear ones."""

LONG_ROW, LONG_FACTORS = 1024, {"_softmax": 1.6, "_log_softmax": 1.45}
"""Rows longer than this fill a block of 1024 threads, of which few fit on an SM."""
SHORT_ROW, SHORT_FACTORS = 2048, {"topk": 40.0}
"""Of shorter rows one block each looks for the largest."""

HALF_CONVOLUTION = (3, 3.0)
"""As in `EAGER`: in 16 bits cuDNN puts the channels last before it, and first again after it."""

POOL_OUTPUT = 170
"""Instructions that eager pooling spends on the place of each output, before it loads its window."""
POOL_PLACE = {"avg_pool3d": 30}
"""And on each place of the window."""

ONE_BLOCK, BLOCK_RATES = 8e9, {"native_layer_norm": 4e9, "native_batch_norm" + TRAINING: 17e9}
"""Bytes per second of nll_loss that adds up its rows, and of each row of a layer norm and each channel of a batch norm:
each is one block."""

ATTENTION, HALF_ATTENTION, SPLIT = 0.6, 0.79, 2048
"""What eager fp32 attention reaches of cuBLAS, and in 16 bits (not measured here: FlashAttention's 600 TFLOP/s); of
longer sums, parts have blocks of their own where there are few."""


SERIAL_US: dict[str, Callable[[float], float]] = {
    **{name + OUTER: lambda n: 0.36 * n for name in SCANS},
    **{name + OUTER: lambda n: 3.0 + 0.65 * n for name in SOFTMAXES},
    **dict.fromkeys(SORTS, lambda n: 7.0 if n <= 32 else min(41.0, 17.0 + 0.0015 * n)),
    **dict.fromkeys(SELECTIONS, lambda n: 4.0 + 0.0036 * n), "unique_consecutive": lambda n: 4.0,
    "topk": lambda n: min(60.0, 9.0 + 0.0048 * n), "_unique2": lambda n: 16.0 if n <= 256 else 60.0,
    **dict.fromkeys(("linalg_inv_ex", "_linalg_solve_ex"), lambda n: 15.0 + 1.9 * n),
    **dict.fromkeys(("_linalg_det", "_linalg_slogdet", "linalg_lu", "linalg_lu_factor_ex"), lambda n: 10.0 + 1.6 * n),
    "linalg_cholesky_ex": lambda n: 20.0 + 0.33 * n, "linalg_solve_triangular": lambda n: 4.0 + 0.25 * n,
    "linalg_qr": lambda n: 10.0 + 2.8 * n, "_linalg_svd": lambda n: 60.0 + 1.5 * n**1.5,
    "_linalg_eigh": lambda n: 30.0 + min(1.0 * n**1.5, 9.7 * n),
}  # fmt: skip
"""Microseconds that one call takes at least where the dimension is so long (`dimensions.dimension`): what an operator
does there one step after the other. Measured on an H200 (torch 2.11, 2026-11) for lengths of 8 to 16384, one row and
many (`benchmarks/serial_operators.py`)."""
SERIAL_US |= {
    **dict.fromkeys(("linalg_eig", "_linalg_eigvals"), SERIAL_US["_linalg_eigh"]),
    "linalg_pinv": SERIAL_US["_linalg_svd"], "linalg_lstsq": SERIAL_US["linalg_qr"],
    "cholesky": SERIAL_US["linalg_cholesky_ex"],
    **dict.fromkeys(("linalg_ldl_factor_ex", "_lu_with_info"), SERIAL_US["linalg_lu"]),
    **dict.fromkeys(("geqrf", "ormqr", "linalg_householder_product"), lambda n: SERIAL_US["linalg_qr"](n) / 2),
    "triangular_solve": SERIAL_US["linalg_solve_triangular"],
    **dict.fromkeys(
        ("cholesky_solve", "cholesky_inverse", "linalg_lu_solve", "linalg_ldl_solve"),
        lambda n: 2 * SERIAL_US["linalg_solve_triangular"](n),
    ),
    "isin": lambda n: 4.4 * n,  # two kernels for each number
    **dict.fromkeys(("isin" + SORTED, "embedding_dense_backward"), SERIAL_US["sort"]),
}  # fmt: skip
"""What was not measured takes as long as what was and does the same, or half, or twice: Q and R, two triangles."""
BY_ROW_US = {"native_layer_norm": 1.9e-3, "topk": 3.2e-3, **dict.fromkeys(SELECTIONS, 1.2e-3)}
BY_ROW_US["rms_norm"] = BY_ROW_US["native_layer_norm"]  # CUDA's kernel is the same
BY_ROW_US |= dict.fromkeys(SELECTS_ROWS, 0.62e-3)
BY_ROW_US |= dict.fromkeys(("native_group_norm", "native_batch_norm" + TRAINING, *PAIRS, *MARGINS), 0.62e-3)
"""For each row: it is a block of threads. The last ones were not measured: no block takes less than a row's copy."""
VECTOR = 16
"""Bytes: rows of other lengths than a multiple have no block each where they are selected."""
COUNTED_US = 40.0
"""Where truth values tell places: they are counted, and the host reads how many. `nonzero` is half of it."""
PLANE_US, RESIDENT = 0.4, 270_000
"""Of each plane of an interpolation: a thread goes through all of them; and how many threads run at a time. Bilinear
ones were measured."""
WINDOW_US = 0.065
"""For each element of a pool's window: a thread goes through it."""
SHORT_ROW_US = 5e-6
"""Of reductions, for each number where rows have at most 64: most threads idle."""
REDUCTION_US, REDUCED_US, REDUCTION_MOST_US = 3.0, 7.6e-6, 10.0
"""Of all reductions: at least, for each number beside that, and up to which sum of both: many need a second step."""
PRODUCT_US, HALF_US, TERMS = (6.0, 0.02), (5.0, 0.0015), 2048
CONVOLUTION_US = {
    "convolution": (6.0, 0.04), "convolution" + TURNED: (10.0, 0.04), "convolution" + GROUPED: (16.0, 0.18),
    "convolution" + DEPTHWISE: (5.0, 0.08),
}  # fmt: skip
"""Products of fp32 and in 16 bits, and convolutions by their kind: at least, and for each of so many terms of a sum,
which one block adds up."""
HIDDEN = 0.7
"""Of the shorter of both, what products in 16 bits compute while they load."""
SCAN_US, PLACES_US = 1.15, 2.7
"""Of one step of a scan along rows, whose threads take two numbers each; the second of those that tell places, too."""
CONTENDED_US = {"index_add": 12e-3, "scatter_add": 3e-3, "scatter_reduce": 3e-3, "index_put" + ADDS: 0.5}
CONTENDED_US |= {"index_reduce": 12e-3, "scatter" + ADDS: 3e-3, "put" + ADDS: 3e-3}
"""For each number that is added to one place, where they are spread evenly."""
ADDED_US = dict.fromkeys(("index_add", "index_reduce"), 8e-6)
"""For each number that is added anywhere."""


def _call_us(row: Row, along: float, outputs: float, scale: Scale) -> float:
    """Microseconds that one call takes at least, whatever else there is to do at the same time.

    Args:
        along, outputs: at full size, `row.block` and `row.output_numel`.
    """
    name, read = row.name.removesuffix("_").replace("_:", ":"), largest(row.tensors, scale)
    if name.endswith(MASK) or name == "masked_select":
        return COUNTED_US
    if name == "nonzero":
        return COUNTED_US / 2
    if name in CONTENDED_US:
        read = _singly(row, scale) or read
        return read * max(CONTENDED_US[name] / max(outputs, 1.0), ADDED_US.get(name, 0.0))
    if name in REDUCTIONS:
        return _reduction_us(read, along)
    if not along:
        return _singly(row, scale) * (MASKED_US if name == "masked_fill" else SINGLE_US)
    if name in SCANS:
        return _scan_us(name, along, max(1.0, outputs / along))
    if name in (*INTERPOLATIONS, *SAMPLERS):
        return 3.0 + PLANE_US * along * math.ceil(outputs / along / RESIDENT)
    least = SERIAL_US[name](along) if name in SERIAL_US else WINDOW_US * along if "pool" in name else 0.0
    rows = _rows(row, along, read if name in (*SELECTIONS, *MARGINS, "topk") else outputs)
    if name in SELECTS_ROWS and (along * _width(row)) % VECTOR:
        rows = 0.0
    return max(least, rows * BY_ROW_US.get(name, 0.0)) / (math.ceil(along / COLUMNS) if name in BY_COLUMNS else 1)


def _singly(row: Row, scale: Scale) -> float:
    """Elements of which one call computes each address."""
    elements = row.accesses / max(row.calls, 1)
    return elements * scale.of_tensor(round(elements))


def _width(row: Row) -> float:
    """Bytes of an element of the output."""
    return next((tensor.unique / max(1, tensor.numel * row.calls) for tensor in row.tensors if tensor.stored), 4.0)


def _reduction_us(read: float, along: float) -> float:
    steps = min(REDUCTION_MOST_US, REDUCTION_US + REDUCED_US * read)
    return max(steps, SHORT_ROW_US * read) if 1 <= along <= 64 else steps


def _product_us(row: Row, products: float, outputs: float, scale: Scale) -> float:
    """At least, of one call: 0 of a matrix and a vector, which are read at once."""
    terms = max(1.0, products / 2 / max(1.0, outputs))
    if "convolution" in row.name:
        least, each = CONVOLUTION_US.get(row.name, CONVOLUTION_US["convolution"])
    elif outputs * terms <= 1.01 * largest((tensor for tensor in row.tensors if not tensor.stored), scale):
        return 0.0
    else:
        least, each = PRODUCT_US if row.math == "fp32" else HALF_US
    return least + each * min(terms, TERMS)


def _scan_us(name: str, along: float, rows: float) -> float:
    """A block of 512 threads goes through some rows together: the more there are, the fewer threads has each."""
    tells_places = name in ("cummax", "cummin")
    if rows == 1.0 and not tells_places:
        return 0.0  # in parts, side by side
    threads = 2 ** min(9, max(4, (9 + math.ceil(math.log2(along)) - math.ceil(math.log2(rows))) // 2))
    return math.ceil(along / (2 * threads)) * (PLACES_US if tells_places else SCAN_US)


def _work_s(row: Row, gpu: Gpu, scale: Scale, along: float, outputs: float) -> float:
    """Seconds of an operator's products at full size, and of the places of a pool's outputs."""
    if "pool" in row.name:
        return row.calls * outputs * (POOL_OUTPUT + POOL_PLACE.get(row.name, 0) * along) / gpu.vector_ops
    products = row.flops * scale.of_products(row)
    if not products:
        return 0.0
    arithmetic = gpu.arithmetic(row.math)
    rate = gpu.flops[arithmetic]
    if "convolution" in row.name and arithmetic == "fp32":
        filled = row.dense_flops * scale.of_dense(row) or products
        return (filled + 2 * SHORT_WINDOW * outputs) / (CONVOLUTION * rate)
    if "attention" in row.name:
        rate *= HALF_ATTENTION if arithmetic == "half" else ATTENTION
    else:
        parts = products / 2 / max(1.0, outputs * row.calls) / SPLIT if "convolution" not in row.name else 1.0
        tiles = outputs / 64**2 * (1 / max(row.calls, 1) if row.name in RECURRENT else max(1.0, parts))
        rate *= min(1.0, max(0.25, tiles / gpu.sms))
    return (products + 2 * SHORT_INNER * outputs) / rate


def _rows(row: Row, along: float, numbers: float) -> float:
    """How many blocks or threads go through so many numbers, each along one row of a dimension."""
    return along if row.name.startswith("native_batch_norm") else numbers / along


def _memory_s(row: Row, gpu: Gpu, scale: Scale, factor: float, rows: float) -> float:
    unique, total = traffic(row, scale)
    seconds = max(stream_s(unique, row.calls, gpu), total / gpu.l2_bandwidth) * factor
    seconds += unique / ONE_BLOCK if row.name == "nll_loss_forward" and row.block else 0.0
    return max(seconds, unique / rows / BLOCK_RATES.get(row.name, math.inf))


def eager_us(row: Row, gpu: Gpu, scale: Scale) -> float:
    """Microseconds of an operator's calls at full size."""
    kernels, factor = EAGER.get(row.name, (1, 1.0))
    along = row.block * scale.extents.get(row.block, 1.0)
    if along > LONG_ROW or 0 < along < SHORT_ROW:
        factor = (LONG_FACTORS if along > LONG_ROW else SHORT_FACTORS).get(row.name, factor)
    outputs = row.output_numel * scale.of_tensor(row.output_numel)
    if row.name == "topk" and 2 * outputs > largest(row.tensors, scale):
        kernels, factor = EAGER["sort"]
    arithmetic, convolves = gpu.arithmetic(row.math), "convolution" in row.name
    if convolves and arithmetic == "half":
        kernels, factor = HALF_CONVOLUTION
    work = _work_s(row, gpu, scale, along, outputs)
    memory = _memory_s(row, gpu, scale, factor, max(1.0, _rows(row, max(along, 1.0), outputs)))
    hidden = HIDDEN * min(memory, work) if arithmetic == "half" and not convolves else 0.0
    calls = calls_of(row, scale)
    least = calls * _call_us(row, along, outputs, scale) + (1e6 * memory if row.name in REDUCTIONS else 0.0)
    if row.flops and (arithmetic in ("fp32", "half") or convolves) and row.name not in (*RECURRENT, *BY_COLUMNS):
        products = row.flops * scale.of_products(row) / max(calls, 1.0)
        least = max(least, calls * _product_us(row, products, outputs, scale))
    return max(1e6 * (memory + work - hidden) + kernels * calls * gpu.kernel_us, least)
