"""A Slurm of its own for these tests: two nodes of ten CPUs each on this machine, however many it has."""

import pytest

from slurm.local.cluster import Cluster, Missing, check


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    try:
        check()
    except Missing as error:
        pytest.skip(f"no local Slurm: {error}")
    made = Cluster(tmp_path_factory.mktemp("slurm"), nodes=2, cpus=10)
    made.up()
    yield made
    made.down()
