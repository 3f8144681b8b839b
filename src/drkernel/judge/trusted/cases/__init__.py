"""What a submission is tried on: values, weights, modes."""
