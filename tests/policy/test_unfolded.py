"""Functions that no policy has learnt are told as the calls that they consist of, and mean the same."""

import pytest
import torch
import torch.nn.functional as F

from drkernel.policy.canonical import canonical
from drkernel.policy.canonical.unfolded import unfolded
from tests.policy.forms import form_of, source_of

SIGNS = torch.tensor([1.0, -1.0, 1.0, 1.0])


def rand(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape))) + 0.1


CALLS = {
    "gaussian_nll": (F.gaussian_nll_loss, (rand(4, 6), rand(6, 4).t(), rand(4, 6)), {"full": True}),
    "gaussian_nll of rows": (F.gaussian_nll_loss, (rand(4, 6), rand(6, 4).t(), rand(4)), {"reduction": "sum"}),
    "ranking": (F.margin_ranking_loss, (rand(4), rand(1, 4)[0], SIGNS.double()), {"margin": 0.3}),
    "soft margin": (F.soft_margin_loss, (rand(4), SIGNS.double()), {}),
    "multilabel soft margin": (F.multilabel_soft_margin_loss, (rand(4, 6), rand(6, 4).t().round()), {}),
    "hinge": (F.hinge_embedding_loss, (rand(4), SIGNS.double()), {"margin": 0.7}),
    "cosine": (F.cosine_embedding_loss, (rand(4, 6), rand(6, 4).t(), SIGNS.double()), {"margin": 0.2}),
    "multi margin": (F.multi_margin_loss, (rand(4, 6), torch.tensor([0, 5, 2, 2])), {"p": 2, "margin": 0.5}),
    "weighted bce": (
        F.binary_cross_entropy_with_logits,
        (rand(4, 6), rand(6, 4).t().round()),
        {"pos_weight": rand(6), "weight": rand(6) * 2},
    ),
    "distance": (F.pairwise_distance, (rand(4, 6), rand(6, 4).t()), {"keepdim": True}),
    "norm": (torch.norm, (rand(4, 6),), {"p": 3, "dim": 1}),
    "vector norm": (torch.linalg.vector_norm, (rand(4, 6),), {"ord": 4, "dim": (0, 1)}),
    "distances": (torch.cdist, (rand(2, 30, 6), rand(2, 40, 6)), {}),
    "addmm": (torch.addmm, (rand(5), rand(4, 6), rand(6, 5)), {"beta": 0.5, "alpha": 2.0}),
    "baddbmm": (torch.baddbmm, (rand(2, 4, 5), rand(2, 4, 6), rand(2, 6, 5)), {}),
    "addcmul": (torch.addcmul, (rand(4), rand(1, 4), rand(2, 4)), {"value": 0.3}),
    "addcdiv": (torch.addcdiv, (rand(4), rand(1, 4), rand(2, 4)), {"value": 0.3}),
    "logaddexp": (torch.logaddexp, (rand(4), rand(1, 4)), {}),
    "tensordot": (torch.tensordot, (rand(2, 3, 4), rand(3, 5)), {"dims": ([1], [0])}),
    "tensordot of two": (torch.tensordot, (rand(2, 3, 4), rand(3, 4, 5, 2)), {"dims": 2}),
    "weight norm": (torch._weight_norm, (rand(4, 3, 5), rand(4, 1, 1)), {"dim": 0}),
    "response norm": (F.local_response_norm, (rand(2, 7, 3, 4), 5), {"alpha": 0.1, "beta": 0.6, "k": 2.0}),
    "response norm of rows": (F.local_response_norm, (rand(2, 7, 3), 4), {"alpha": 0.1}),
    "lp_pool1d": (F.lp_pool1d, (rand(2, 3, 9), 3, 2), {}),
    "lp_pool2d": (F.lp_pool2d, (rand(2, 3, 9, 8), 4.0, (3, 2)), {"stride": (2, 1)}),
    "bags": (
        F.embedding_bag,
        (torch.tensor([[1, 2], [0, 2]]), rand(3, 6)),
        {"mode": "sum", "per_sample_weights": rand(2, 2)},
    ),
    "largest of bags": (F.embedding_bag, (torch.tensor([[1, 2], [0, 2]]), rand(3, 6)), {"mode": "max"}),
    "both moments": (torch.std_mean, (rand(4, 6),), {"dim": 1, "keepdim": True}),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_parts_compute_what_the_whole_does(name):
    function, args, words = CALLS[name]
    parts = unfolded(function, args, words)
    assert parts is not None
    torch.testing.assert_close(parts(), function(*args, **words))


AS_THEY_ARE = {
    "two": (torch.norm, (rand(4, 6),), {"dim": 1}),
    "addmm": (torch.addmm, (rand(5), rand(4, 6), rand(6, 5)), {}),
    "addcmul": (torch.addcmul, (rand(4), rand(4), rand(4)), {}),
    "logits": (F.binary_cross_entropy_with_logits, (rand(4), rand(4)), {}),
    "pool of squares": (F.lp_pool2d, (rand(2, 3, 9, 8), 2.0, 3), {}),
    "bags of many sizes": (F.embedding_bag, (torch.tensor([0, 1, 2]), rand(3, 6), torch.tensor([0, 1])), {}),
}


@pytest.mark.parametrize("name", AS_THEY_ARE)
def test_what_a_policy_knows_is_told_as_it_is(name):
    function, args, words = AS_THEY_ARE[name]
    assert unfolded(function, args, words)() is NotImplemented


def test_a_loss_is_told_as_its_lines():
    lines = form_of("return F.margin_ranking_loss(x, y, x * 2, margin=0.5)", "torch.randn(8), torch.randn(8)")
    assert lines == [
        "t0 = in0 * 2.0",
        "t1 = in0 - in1",
        "t2 = t1 * t0",
        "t3 = 0.5 - t2",
        "t4 = torch.clamp(t3, min=0.0)",
        "t5 = torch.mean(t4)  # t4: (8,); ()",
    ]


def test_a_loss_that_looks_at_values_is_told():
    form = canonical(source_of("return F.gaussian_nll_loss(x, x, x)"))
    assert form.told.lines


def test_a_variance_of_a_sample_is_the_usual_one():
    usual = form_of("return torch.var(x, dim=1)")
    assert form_of("return torch.var(x, dim=1, correction=1)") == usual
    assert form_of("return torch.var(x, dim=1, correction=0)") != usual


def test_the_channels_of_a_convolution_of_ones_own_are_no_numbers_of_the_task():
    start = """
        class Causal(nn.Conv1d):
            def __init__(self, n, k):
                super().__init__(n, n, k)
                self.left = k - 1
            def forward(self, x):
                return super().forward(F.pad(x, (self.left, 0)))
        self.conv = Causal(8, 5)
    """
    source = source_of("return self.conv(x)", "torch.randn(4, 8, 20)", start)
    assert "n0: 4" in canonical(source).text and "n1" not in canonical(source).text
