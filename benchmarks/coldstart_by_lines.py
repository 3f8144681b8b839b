"""What a program without a policy solves: kernels of a task's point-wise lines (coldstart/answers/lines.py).

    python benchmarks/coldstart_by_lines.py handwritten:development [--workers 2]

SOURCE is as in `tasks.source`. Prints how many tasks it answers, how many answers are right and reach Fast@1.2 on the
simulated H200, and the verdicts' reasons.
"""

import argparse
from collections import Counter

from drkernel.coldstart.answers.lines import by_lines
from drkernel.judge import Judge
from drkernel.tasks import load_tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    tasks = load_tasks(options.source, split="all")
    with Judge(device="simulated", workers=options.workers) as judge:
        pending = [judge.submit(task, answer) for task in tasks if (answer := by_lines(task))]
        verdicts = [future.result() for future in pending]
    right = [verdict for verdict in verdicts if verdict.ok]
    fast = sum((verdict.speedup or 0.0) >= 1.2 for verdict in right)
    print(f"{len(tasks)} tasks, {len(verdicts)} answered, {len(right)} right, {fast} at 1.2")
    print(dict(Counter(verdict.reason for verdict in verdicts)))


if __name__ == "__main__":
    main()
