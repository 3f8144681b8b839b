import torch
import torch.nn as nn

batch_size = 16
channels = 64
height = 112
width = 112


class ForwardModel(nn.Module):
    """The pooling at the start of a ResNet."""

    def __init__(self, kernel_size, stride, padding):
        super().__init__()
        self.maxpool = nn.MaxPool2d(kernel_size, stride, padding)

    def forward(self, x):
        return self.maxpool(x)


def get_forward_inputs():
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return [3, 2, 1]


class Model(ForwardModel):
    def forward(self, x, grad_output):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            output = super().forward(x)
            return torch.autograd.grad(output, x, grad_output)[0]


def get_inputs():
    inputs = get_forward_inputs()
    with torch.device("meta"):  # for the shape alone
        model = ForwardModel(*get_init_inputs())
        output = model(*(x.to("meta") if torch.is_tensor(x) else x for x in inputs))
    return [*inputs, torch.randn(output.shape)]
