"""What would end a process on a GPU raises an error, as on a CPU."""

import pytest
import torch
import torch.nn.functional as F

from drkernel.judge.trusted.cases import domain

X, IDS = torch.arange(12.0).view(3, 4), torch.tensor([0, 3])
RIGHT = {
    "embedding": lambda ids: F.embedding(ids, torch.ones(4, 2)),
    "embedding_bag": lambda ids: F.embedding_bag(ids[None], torch.ones(4, 2)),
    "index": lambda ids: X[:, ids],
    "index_put": lambda ids: X.clone().index_put_((torch.tensor([0, 1]), ids), torch.tensor(1.0)),
    "index_select": lambda ids: X.index_select(1, ids),
    "gather": lambda ids: X.gather(1, ids[None]),
    "scatter": lambda ids: X.scatter(1, ids[None], 1.0),
    "index_add": lambda ids: X.index_add(1, ids, torch.ones(3, 2)),
    "nll_loss": lambda ids: F.cross_entropy(X[:2], ids),
    "nll_loss of images": lambda ids: F.cross_entropy(X[:2, :, None], ids[:, None]),
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("wrong", [4, -5, 2**40])
def test_an_index_out_of_range_is_an_error_before_anything_reads_there(name: str, wrong: int):
    with domain.InDomain():
        RIGHT[name](IDS)
        with pytest.raises(IndexError, match="where there are 4 places"):
            RIGHT[name](torch.tensor([0, wrong]))


def test_indices_that_operators_take_are_taken():
    with domain.InDomain():
        assert X[:, torch.tensor([-4, 3])].tolist() == X[:, [0, 3]].tolist()
        assert X[X > 3].shape == (8,) and X[None, :, torch.tensor([3])].shape == (1, 3, 1)
        F.cross_entropy(X[:2], torch.tensor([-100, 3]))
        assert torch.take(X, torch.tensor([11, -12])).tolist() == [11.0, 0.0]
        torch.ones(()).gather(0, torch.tensor([0]))
