"""What is recorded of library operators: the bytes that a GPU would move for them."""

import pytest
import torch
import torch.nn.functional as F

from drkernel.hardware.windows import COLUMNS, DEPTHWISE, FULL_TURNED
from drkernel.judge.boundary.aten import install, record

install()


def rows(function):
    with torch.no_grad(), record() as trace:
        function()
    return {row.name: row for row in trace.rows}


def test_an_elementwise_operator_reads_its_inputs_and_writes_its_output():
    x, y = torch.randn(64, 32), torch.randn(64, 32)
    (row,) = rows(lambda: x + y).values()
    assert [(t.numel, t.unique, t.stored) for t in row.tensors] == [(2048, 16384, False), (2048, 8192, True)]
    assert (row.name, row.calls, row.output_numel, row.triton) == ("add", 1, 2048, False)


def test_a_broadcast_bias_counts_its_own_bytes():
    x, bias = torch.randn(64, 32), torch.randn(32)
    assert rows(lambda: x + bias)["add"].bytes_unique == (2048 + 32 + 2048) * 4
    assert rows(lambda: x + bias.expand(64, 32))["add"].bytes_unique == (2048 + 32 + 2048) * 4


def test_broadcast_operands_and_slices_are_addressed_one_by_one():
    x, bias = torch.randn(64, 32), torch.randn(32)
    left, right = torch.randn(64, 64).chunk(2, 1)
    assert rows(lambda: x + bias)["add"].accesses == rows(lambda: left * right)["mul"].accesses == 2048
    assert rows(lambda: x + x)["add"].accesses == rows(lambda: x.t() * 2)["mul"].accesses == 0


def test_logsigmoid_has_no_buffer_as_on_cuda():
    x = torch.randn(64, 32)
    assert rows(lambda: F.logsigmoid(x))["log_sigmoid_forward"].bytes_unique == 2 * 8192


def test_an_operator_without_output_is_recorded():
    x = torch.randn(64, 32)
    assert rows(lambda: torch.equal(x, x + 0))["equal"].bytes_unique == 2 * 8192


def test_views_and_allocations_are_free():
    x = torch.randn(64, 32)
    assert rows(lambda: (x.view(-1), x.t(), x[3:], x.unsqueeze(0).expand(5, 64, 32), torch.empty(9), x.detach())) == {}


@pytest.mark.parametrize(
    ("name", "function", "moved"),
    [
        ("clone", lambda x: x.t().contiguous(), 2 * 8192),
        ("cat", lambda x: torch.cat([x, x + 0]), 4 * 8192),
        ("copy_", lambda x: torch.empty_like(x).copy_(x), 2 * 8192),
        ("zero_", lambda x: x.zero_(), 8192),
        ("relu_", lambda x: x.relu_(), 2 * 8192),
        ("sum", lambda x: x.sum(1), 8192 + 64 * 4),
        ("_softmax", lambda x: x.softmax(1), 2 * 8192),
        ("embedding", lambda x: F.embedding(torch.tensor([1, 2]), x), 2 * 2 * 32 * 4 + 2 * 8),
    ],
)
def test_bytes_of(name, function, moved):
    x = torch.randn(64, 32)
    assert rows(lambda: function(x))[name].bytes_unique == moved


def test_overlapping_elements_are_read_once():
    found = rows(lambda: torch.ones(128).as_strided((64, 64), (1, 1)).relu())
    assert [t.unique for t in found["relu"].tensors] == [127 * 4, 64 * 64 * 4]


def test_a_scan_along_another_dimension_is_another_one():
    x = torch.ones(8, 8)
    assert {*rows(lambda: (torch.cummax(x, 0), torch.cummax(x, 1)))} == {"cummax", "cummax:outer"}


def test_products_are_counted_with_their_arithmetic():
    x, w = torch.randn(8, 16), torch.randn(32, 16)
    row = rows(lambda: F.linear(x, w, torch.zeros(32)))["addmm"]
    assert (row.flops, row.math) == (2 * 8 * 16 * 32, "fp32")
    assert rows(lambda: x.bfloat16() @ w.bfloat16().t())["mm"].math == "half"
    q = torch.randn(2, 4, 10, 16)
    (attention,) = (r for r in rows(lambda: F.scaled_dot_product_attention(q, q, q)).values() if r.flops)
    assert attention.flops == 2 * 2 * 4 * 10 * 10 * 16 * 2


def test_layers_and_factors_that_take_step_after_step_are_as_many_calls():
    x, layer, matrix = torch.randn(20, 2, 8), torch.nn.LSTM(8, 8), torch.eye(100)
    assert rows(lambda: layer(x))["mkldnn_rnn_layer"].calls == 20
    assert rows(lambda: torch.linalg.solve_triangular(matrix, matrix[:, :3], upper=True)).popitem()[1].calls == 4
    assert {row.calls for row in rows(lambda: torch.linalg.inv(matrix)).values()} == {1, 4}
    assert rows(lambda: matrix @ matrix)["mm"].calls == 1


def test_reading_a_number_off_the_device_is_recorded():
    x = torch.ones(3)
    assert list(rows(lambda: float(x.sum()))) == ["sum", "_local_scalar_dense"]


def test_rms_norm_is_one_operator_as_on_cuda():
    x, weight = torch.randn(64, 32), torch.ones(32)
    (row,) = rows(lambda: F.rms_norm(x, (32,), weight)).values()
    assert (row.name, row.bytes_unique) == ("rms_norm", 2 * 8192 + 32 * 4)


def test_the_inside_of_an_autograd_function_is_recorded():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.mul(2).relu()

    assert set(rows(lambda: Double.apply(torch.ones(4, requires_grad=True)))) >= {"mul", "relu"}


def test_the_inside_of_a_custom_operator_is_recorded():
    @torch.library.custom_op("drkernel_test::double_relu", mutates_args=())
    def double_relu(x: torch.Tensor) -> torch.Tensor:
        return x.mul(2).relu()

    x = torch.ones(4)
    assert {name: row.calls for name, row in rows(lambda: double_relu(x)).items()} == {"mul": 1, "relu": 1}


@pytest.mark.parametrize(
    "function",
    [
        lambda a: torch.ops.aten._trilinear(a, a, torch.ones([]), [2], [0], [0, 1, 2], [1]),
        lambda a: F.embedding_bag(torch.arange(64).expand(64, 64), a, per_sample_weights=a, mode="sum"),
        lambda a: torch.linalg.matrix_exp(a),
        lambda a: torch.linalg.solve_triangular(a, a, upper=True),
        lambda a: torch.addbmm(a, a[None], a[None]),
        lambda a: a.clone().addmm_(a, a),
        lambda a: a[None].clone().baddbmm_(a[None], a[None]),
        lambda a: torch.conv_tbc(a[:, None], a[None], torch.zeros(64)),
        lambda a: torch.ops.aten.slow_conv_dilated2d(a[None, :, :, None], a[..., None, None], [1, 1]),
        lambda a: torch.cdist(a, a),
    ],
)
def test_operators_with_products_inside_have_their_work(function):
    found = rows(lambda: function(torch.rand(64, 64)))
    assert max(row.flops for row in found.values()) >= 2 * 64**3


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda a: a.clone().cumsum_(0), "cumsum:outer"),
        (lambda a: a.clone().cumprod_(1), "cumprod"),
        (lambda a: torch.softmax(a, 0, out=torch.empty_like(a)), "_softmax:outer"),
        (lambda a: torch.log_softmax(a, 1, out=torch.empty_like(a)), "_log_softmax"),
        (lambda a: a[torch.arange(64)[:, None], torch.zeros(64, 64, dtype=torch.long)], "gather"),
        (lambda a: torch.take(a, torch.zeros(64, 64, dtype=torch.long)), "gather"),
        (lambda a: a[torch.arange(64)], "index"),
    ],
)
def test_what_one_algorithm_does_has_one_name(function, name):
    """In place, with an output that is given, or by places of single elements."""
    assert rows(lambda: function(torch.rand(64, 64)))[name].calls == 1


ONE = torch.ones(1, 64, 8, 8)


@pytest.mark.parametrize(
    ("function", "more"),
    [
        (lambda w: torch.conv_tbc(ONE[0], torch.ones(3, 8, 4), torch.zeros(4)), COLUMNS / 4 * 64 / 24),
        (lambda w: torch.ops.aten.slow_conv_dilated2d(ONE, w[:4], [3, 3]), COLUMNS / 4),
        (lambda w: torch.ops.aten.slow_conv3d(ONE[:, :, None], w[:4, :, None], [1, 3, 3]), COLUMNS / 4),
        (lambda w: torch.ops.aten.thnn_conv2d(ONE, w[:4], [3, 3]), COLUMNS / 4),
        (lambda w: torch.ops.aten.slow_conv_transpose2d(ONE, w[:, :4], [3, 3]), COLUMNS / 4),
        (lambda w: torch.ops.aten.slow_conv_transpose2d(ONE, w[:, :4], [3, 3], None, [2, 2]), FULL_TURNED / 64),
        (lambda w: torch.ops.aten.mkldnn_convolution(ONE, w[:4], None, [0, 0], [1, 1], [1, 1], 1), COLUMNS / 4),
        (lambda w: torch.ops.aten.mkldnn_convolution(ONE, w[:, :1], None, [0, 0], [1, 1], [1, 1], 64), DEPTHWISE),
    ],
)
def test_a_convolution_by_another_name_leaves_as_many_lanes_empty(function, more):
    found = rows(lambda: function(torch.ones(64, 64, 3, 3)))
    (row,) = [row for name, row in found.items() if name.startswith("convolution")]
    assert row.dense_flops == pytest.approx(more * row.flops)


def test_parts_of_a_tensor_are_no_copies():
    x = torch.randn(64, 32)
    assert not rows(lambda: (torch.unsafe_split(x, 16), torch.unsafe_split_with_sizes(x, [16, 48]), x.chunk(4)))


def test_a_reduction_goes_through_each_element_of_windows_that_overlap():
    x = torch.randn(64, 64)
    row = rows(lambda: x.unfold(1, 9, 1).mean(-1))["mean"]
    assert row.tensors[0].unique <= 4 * x.numel() and row.tensors[0].total == 4 * 64 * 56 * 9
    assert rows(lambda: x[:, :1].expand(64, 64) + x)["add"].bytes_total == (64 + 2 * 64 * 64) * 4


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_attention_multiplies_in_the_format_of_its_query_and_half_of_it_where_it_is_causal(dtype):
    q = torch.randn(2, 4, 64, 16, dtype=dtype)
    ask = lambda causal: rows(lambda: F.scaled_dot_product_attention(q, q + 0, q + 0, is_causal=causal))
    whole, causal = (next(row for name, row in ask(causal).items() if "attention" in name) for causal in (False, True))
    assert whole.math == causal.math == ("half" if dtype == torch.float16 else "fp32")
    assert whole.flops == 4 * 8 * 64 * 64 * 16 and causal.flops / whole.flops == pytest.approx(65 / 128)


def test_products_of_eight_bits_are_those():
    a, b = torch.ones(32, 64, dtype=torch.int8), torch.ones(16, 64, dtype=torch.int8).t()
    row = rows(lambda: torch._int_mm(a, b))["_int_mm"]
    assert (row.math, row.flops) == ("byte", 2 * 32 * 64 * 16)
    assert row.bytes_total == row.bytes_unique, "a transposed factor costs no more"


@pytest.mark.parametrize("name", ["LSTMCell", "GRUCell"])
def test_a_cell_is_two_products_and_one_kernel_as_on_cuda(name):
    cell, x = getattr(torch.nn, name)(16, 16), torch.randn(4, 16)
    found = rows(lambda: cell(x))
    assert found.keys() - {"zeros"} == {"mm", f"_thnn_fused_{name.lower().replace('cell', '_cell')}"}
    assert found["mm"].calls == 2 and found["mm"].flops == 2.0 * 4 * sum(
        w.numel() for w in cell.parameters() if w.dim() == 2
    )


def test_a_recurrent_layer_is_one_operator_of_many_steps_as_on_cuda():
    layer, x = torch.nn.GRU(8, 16, num_layers=2, bidirectional=True, batch_first=True), torch.randn(4, 9, 8)
    found = rows(lambda: layer(x))
    assert found.keys() == {"zeros", "gru"} and found["gru"].calls == 9 * 2 * 2
    weights = sum(weight.numel() for weight in layer.parameters() if weight.dim() == 2)
    assert found["gru"].flops == 2.0 * 4 * 9 * weights
