"""What a program without a policy solves: kernels of a task's lines (coldstart/answers/lines.py).

    python benchmarks/coldstart_by_lines.py SOURCE... [--device simulated] [--workers 2]

A SOURCE is as in `tasks.source`, or `generated:N` or `free:N`: N tasks of the wide generator, or free programs. Prints
for each how many tasks it answers, how many answers are right and reach Fast@1.2, and those that are not right.
"""

import argparse
from itertools import islice

from drkernel.coldstart.answers.lines import by_lines
from drkernel.judge import Judge
from drkernel.tasks import generate, load_tasks
from drkernel.tasks.generators.programs import stream
from drkernel.types import DrKernelError, Task


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--device", default="simulated")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with Judge(device=options.device, workers=options.workers) as judge:
        for source in options.sources:
            tasks = tasks_of(source)
            pending = [(task, judge.submit(task, answer)) for task in tasks if (answer := by_lines(task))]
            right, fast = 0, 0
            for task, future in pending:
                try:
                    verdict = future.result()
                except DrKernelError as error:
                    print(f"  {task.id}: the judge refuses the task: {error}")
                    continue
                right, fast = right + verdict.ok, fast + (verdict.ok and (verdict.speedup or 0.0) >= 1.2)
                if not verdict.ok:
                    print(f"  {task.id}: {verdict.status}, {verdict.reason}: {verdict.detail[:300]}")
            print(f"{source}: {len(tasks)} tasks, {len(pending)} answered, {right} right, {fast} at 1.2", flush=True)


def tasks_of(source: str) -> list[Task]:
    name, _, number = source.partition(":")
    if name == "generated":
        return generate("train", int(number), 4242, generator="graphs", dtypes=("float32",))
    if name == "free":
        return list(islice(stream("train", 4242), int(number)))
    return load_tasks(source, split="all")


if __name__ == "__main__":
    main()
