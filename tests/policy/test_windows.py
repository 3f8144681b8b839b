"""Kernels have the numbers of the windows for which they stand, whatever a policy wrote."""

import re

import pytest

from drkernel.coldstart.answers.lines import by_lines
from drkernel.policy.canonical import canonical
from drkernel.types import Task
from tests.policy.forms import source_of

LAYERS = {
    "dilated": ("nn.Conv1d(48, 96, 5, dilation=16)", "8, 48, 4000", [("t * 16", "t * 1"), ("16 * (5", "5 * (5")]),
    "rectangular": (
        "nn.Conv2d(64, 96, (3, 5), stride=(2, 1), padding=(1, 2))",
        "8, 64, 60, 60",
        [
            ("xH * 2", "xH"),
            ("t % 5 - 2", "t % 5 - 1"),
            ("2 * 2 - 5 + 1", "2 * 1 - 5 + 1"),
            ("range(3 * 5", "range(5 * 5"),
        ],
    ),
    "strip of each channel": (
        "nn.Conv2d(64, 64, (1, 7), padding=(0, 3), groups=64)",
        "8, 64, 60, 60",
        [("static_range(1)", "static_range(7)"), ("* 1 + rH", "* 7 + rH"), ("shape[2] - 1 + 1", "shape[2] - 7 + 1")],
    ),
    "pool": (
        "nn.MaxPool2d((2, 5), stride=(2, 3), padding=(1, 2), dilation=(1, 2))",
        "8, 64, 60, 60",
        [("rW * 2", "rW"), ("% OW * 3 - 2", "% OW * 2 - 1"), ("static_range(5)", "static_range(2)")],
    ),
    "transposed": (
        "nn.ConvTranspose2d(64, 48, (4, 3), stride=2, padding=(1, 0))",
        "8, 64, 30, 30",
        [("zH + 1", "zH + 0"), ("(in0.shape[2] - 1) * 2", "in0.shape[2] - 1"), ("cdiv(3 - aW", "cdiv(4 - aW")],
    ),
    "transposed without strides": (
        "nn.ConvTranspose1d(64, 48, 5, dilation=3)",
        "8, 64, 2000",
        [("xW - t * 3", "xW + t"), ("(2, 1, 0)", "(2, 0, 1)"), (" & (yW >= 0) & (yW < W)", "")],
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_numbers_are_those_of_the_reference(name):
    layer, shape, mistakes = LAYERS[name]
    task = Task("t", source_of("return self.layer(x)", f"torch.randn({shape})", f"self.layer = {layer}"))
    form = canonical(task.source)
    right = form.completion(by_lines(task))
    assert form.submission(right) == form.whole(right), "what is right stays as it is"
    for at_once in ([mistake] for mistake in mistakes), [mistakes]:
        for some in at_once:
            wrong = right
            for now, instead in some:
                assert now in wrong, right
                wrong = wrong.replace(now, instead)
            assert _text(form.submission(wrong)) == _text(form.whole(right))


def _text(source: str) -> str:
    return re.sub(r"""^['"]+.*$""", "", source, flags=re.MULTILINE).replace("\n\n", "\n")


def test_a_kernel_of_another_style_stays():
    task = Task("t", source_of("return self.layer(x)", "torch.randn(8, 48, 900)", "self.layer = nn.Conv1d(48, 96, 5)"))
    form = canonical(task.source)
    other = form.completion(by_lines(task)).replace("yW = xW + t", "place = xW + t").replace("yW", "place")
    assert form.submission(other) == form.whole(other)
