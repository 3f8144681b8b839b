import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, image_size, patch_size, num_classes, dim, depth, heads, mlp_dim, channels=3):
        super(Model, self).__init__()
        assert image_size % patch_size == 0
        self.patch_size = patch_size
        patches = (image_size // patch_size) ** 2
        self.pos_embedding = nn.Parameter(torch.randn(1, patches + 1, dim))
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim))
        self.patch_to_embedding = nn.Linear(channels * patch_size**2, dim)
        layer = nn.TransformerEncoderLayer(dim, heads, mlp_dim, dropout=0.0, batch_first=True)
        self.transformer = nn.TransformerEncoder(layer, depth)
        self.norm, self.fc1, self.fc2 = nn.LayerNorm(dim), nn.Linear(dim, mlp_dim), nn.Linear(mlp_dim, num_classes)

    def forward(self, img):
        p = self.patch_size
        x = img.unfold(2, p, p).unfold(3, p, p).reshape(img.shape[0], -1, p * p * img.shape[1])
        x = self.patch_to_embedding(x)
        x = torch.cat((self.cls_token.expand(img.shape[0], -1, -1), x), dim=1) + self.pos_embedding
        x = self.norm(self.transformer(x)[:, 0])
        return self.fc2(F.gelu(self.fc1(x)))


image_size = 224
patch_size = 16
num_classes = 10
dim = 512
depth = 6
heads = 8
mlp_dim = 2048
channels = 3


def get_inputs():
    return [torch.rand(2, channels, image_size, image_size)]


def get_init_inputs():
    return [image_size, patch_size, num_classes, dim, depth, heads, mlp_dim, channels]
