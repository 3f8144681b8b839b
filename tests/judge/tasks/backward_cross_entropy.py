import torch
import torch.nn as nn
import torch.nn.functional as F

tokens = 8192
classes = 4096


class ForwardModel(nn.Module):
    """Mean cross entropy."""

    def forward(self, logits, targets):
        return F.cross_entropy(logits, targets)


def get_forward_inputs():
    return [torch.randn(tokens, classes), torch.randint(0, classes, (tokens,))]


def get_init_inputs():
    return []


class Model(ForwardModel):
    def forward(self, logits, targets, grad_output):
        with torch.enable_grad():
            logits = logits.detach().requires_grad_()
            output = super().forward(logits, targets)
            return torch.autograd.grad(output, logits, grad_output)[0]


def get_inputs():
    inputs = get_forward_inputs()
    with torch.device("meta"):  # for the shape alone
        model = ForwardModel(*get_init_inputs())
        output = model(*(x.to("meta") if torch.is_tensor(x) else x for x in inputs))
    return [*inputs, torch.randn(output.shape)]
