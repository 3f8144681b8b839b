import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, cluster_size=32, feature_size=512, ghost_clusters=16):
        super(Model, self).__init__()
        self.cluster_size, self.feature_size = cluster_size, feature_size
        self.clusters = nn.Parameter(torch.randn(feature_size, cluster_size + ghost_clusters) / feature_size**0.5)
        self.norm = nn.BatchNorm1d(cluster_size + ghost_clusters)
        self.centres = nn.Parameter(torch.randn(1, feature_size, cluster_size) / feature_size**0.5)
        self.fc = nn.Linear(cluster_size * feature_size, 1024)

    def forward(self, x):
        b, n, d = x.shape
        assignment = self.norm(x.view(-1, d) @ self.clusters)
        assignment = F.softmax(assignment, dim=1)[:, : self.cluster_size].view(b, n, -1)
        a = assignment.sum(1, keepdim=True) * self.centres
        vlad = F.normalize((assignment.transpose(1, 2) @ x).transpose(1, 2) - a)
        return F.relu(self.fc(F.normalize(vlad.reshape(b, -1))))


batch_size = 2048
num_features = 100
num_clusters = 32
feature_size = 512
ghost_clusters = 16


def get_inputs():
    return [torch.rand(batch_size, num_features, feature_size)]


def get_init_inputs():
    return [num_clusters, feature_size, ghost_clusters]
