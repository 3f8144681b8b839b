import torch
import torch.nn as nn
import torch.nn.functional as F


class Inception(nn.Module):
    def __init__(self, in_channels, out1, reduce3, out3, reduce5, out5, pool):
        super().__init__()
        self.branch1 = nn.Conv2d(in_channels, out1, 1)
        self.branch3 = nn.Sequential(nn.Conv2d(in_channels, reduce3, 1), nn.Conv2d(reduce3, out3, 3, padding=1))
        self.branch5 = nn.Sequential(nn.Conv2d(in_channels, reduce5, 1), nn.Conv2d(reduce5, out5, 5, padding=2))
        self.branch_pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(in_channels, pool, 1))

    def forward(self, x):
        return torch.cat([self.branch1(x), self.branch3(x), self.branch5(x), self.branch_pool(x)], 1)


class Model(nn.Module):
    def __init__(self, num_classes=1000):
        super(Model, self).__init__()
        self.conv1 = nn.Conv2d(3, 64, kernel_size=7, stride=2, padding=3)
        self.conv2 = nn.Conv2d(64, 192, kernel_size=3, padding=1)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.a = Inception(192, 64, 96, 128, 16, 32, 32)
        self.b = Inception(256, 128, 128, 192, 32, 96, 64)
        self.c = Inception(480, 192, 96, 208, 16, 48, 64)
        self.d = Inception(512, 160, 112, 224, 24, 64, 64)
        self.e = Inception(512, 256, 160, 320, 32, 128, 128)
        self.f = Inception(832, 384, 192, 384, 48, 128, 128)
        self.fc = nn.Linear(1024, num_classes)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = self.pool(self.b(self.a(x)))
        x = self.pool(self.e(self.d(self.c(x))))
        return self.fc(self.f(x).mean((2, 3)))


batch_size, num_classes = 10, 1000


def get_inputs():
    return [torch.rand(batch_size, 3, 224, 224)]


def get_init_inputs():
    return [num_classes]
