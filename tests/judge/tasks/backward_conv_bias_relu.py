import torch
import torch.nn as nn

batch_size = 16
in_channels = 32
out_channels = 64
height = 64
width = 64
kernel_size = 3


class ForwardModel(nn.Module):
    """Convolution, ReLU, then a bias per channel."""

    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1))

    def forward(self, x):
        x = self.conv(x)
        x = torch.relu(x)
        return x + self.bias


def get_forward_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]


class Model(ForwardModel):
    def forward(self, x, grad_output):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            output = super().forward(x)
            return torch.autograd.grad(output, (x, *self.parameters()), grad_output)


def get_inputs():
    inputs = get_forward_inputs()
    with torch.device("meta"):  # for the shape alone
        model = ForwardModel(*get_init_inputs())
        output = model(*(x.to("meta") if torch.is_tensor(x) else x for x in inputs))
    return [*inputs, torch.randn(output.shape)]
