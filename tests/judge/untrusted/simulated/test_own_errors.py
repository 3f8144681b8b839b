"""What ends a dry run is the submission's own error, or may come from tensors without data."""

import pytest
import torch

from drkernel.judge.untrusted.runner import FILE
from drkernel.judge.untrusted.simulated.dry_run import launched
from drkernel.judge.untrusted.simulated.own_errors import Unfinished

NOTHING = {"list": [{"list": []}, {"dict": []}]}
SHAPE = [["float32", [2**14, 2**14], [2**14, 1]]]
SOURCE = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        {}\n        return x\n"
LARGE = "if x.numel() > 2**20: "


def run(line: str) -> None:
    module: dict = {}
    exec(compile(SOURCE.format(line), FILE, "exec"), module)
    launched(module["ModelNew"], NOTHING, {"list": [{"tensor": 0}]}, SHAPE, False)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (LARGE + "raise ValueError('rows of more than 1024 elements')", ValueError),
        ("assert x.shape[1] <= 1024, 'too long'", AssertionError),
        (LARGE + "raise SystemExit", SystemExit),
        (LARGE + "missing", NameError),
        (LARGE + "x.shape.block", AttributeError),
        (LARGE + "[1, 2][x.shape[0]]", IndexError),
        (LARGE + "{1: 2}[x.shape[0]]", KeyError),
        ("1 // (x.shape[0] - 2**14)", ZeroDivisionError),
        ("a, b, c = x.shape", ValueError),
        (LARGE + "len(4)", TypeError),
        (LARGE + "None + 1", TypeError),
        ("try: {}[3]\n        except KeyError as e: raise RuntimeError('no such block') from e", RuntimeError),
    ],
)
def test_what_the_submission_or_python_raises_is_its_own_error(line, error):
    with pytest.raises(error):
        run(line)


@pytest.mark.parametrize(
    "line",
    [
        "float(x[0, 0]); raise ValueError('after a number was read')",
        "assert x[0, 0].item() == 0.37",
        "assert x[0].tolist() == []",
        "assert not x.isnan().any()",
        "1 // (x[0, 0].int().item() - 1)",
        "torch.nested.nested_tensor([x[0], x[1]])",
        "try: torch.nested.nested_tensor([x[0], x[1]])\n        except Exception: raise ValueError('none') from None",
        "try: torch.nested.nested_tensor([x[0], x[1]])\n        except Exception: pass\n        raise ValueError",
    ],
)
def test_what_follows_from_missing_data_is_not(line):
    with pytest.raises(Unfinished) as raised:
        run(line)
    assert not raised.value.unclear


@pytest.mark.parametrize(
    "line",
    [
        "x.view(7, -1)",
        "self.block + 1",
        "bytes(x.untyped_storage()[:4])",
        "try: x.view(7, -1)\n        except RuntimeError as e: raise ValueError('no') from e",
    ],
)
def test_of_what_pytorch_raises_it_is_not_clear(line):
    with pytest.raises(Unfinished) as raised:
        run(line)
    assert raised.value.unclear


@pytest.mark.parametrize(
    "line",
    [
        "assert x.is_contiguous() and x.data_ptr() % 16 == 0",
        "assert isinstance(x, torch.Tensor) and x.dtype == torch.float32",
        "if x.sum(): pass",
        "max(x[0, :4])",
        "torch.tensor([x[0, 0], x[0, 1]])",
        "f'{x[0, 0]:.3f}'",
        "x[0].numpy()",
        "assert torch.equal(x, x) and torch.allclose(x, x)",
        "torch.unique(x, return_inverse=True, return_counts=True)[2].tolist()",
        "torch.linalg.lstsq(x[:4, :4], x[:4, :4])",
    ],
)
def test_what_honest_code_asks_raises_nothing(line):
    run(line)
    assert torch.ones(2).sum().item() == 2
