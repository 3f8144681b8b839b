"""Tasks that lie in files.

kernelbench.py   a Python file, and folders in KernelBench's layout
records.py       JSONL, JSON and parquet files, and datasets on the Hugging Face hub
record_types.py  the fields of a record, each checked
"""
