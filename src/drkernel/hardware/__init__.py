"""What the judge, the trainer and the cold start need to know of GPUs and their libraries. It imports nothing else of
the project."""
