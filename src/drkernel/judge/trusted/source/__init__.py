"""The static check: what is read of a submission before it runs."""
