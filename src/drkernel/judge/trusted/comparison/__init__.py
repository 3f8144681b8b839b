"""Is an output right? Tolerances, and what an output is held against."""
