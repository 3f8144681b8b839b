"""What is to be solved: KernelBench files, JSONL and parquet sets, the generator, and their splits."""
