"""Test-time scaling: strategies that spend a budget of judge calls, studies of them, and what the studies say."""
