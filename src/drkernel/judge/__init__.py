"""Is a submission right, is it honest, how fast is it, and by whose work. Can be used alone:

with Judge(workers=2) as judge:
    verdict = judge.judge(task, source)

python -m drkernel.judge TASK.py SUBMISSION.py

with RemoteJudge(["http://node1:8000"]) as judge:      # python -m drkernel.judge --serve 127.0.0.1:8000
    verdict = judge.judge(task, source)
"""

from drkernel.judge.feedback import feedback
from drkernel.judge.interface import JudgeProtocol
from drkernel.judge.network.client import RemoteJudge
from drkernel.judge.network.connection import read_token
from drkernel.judge.service import Judge
from drkernel.judge.trusted.processes.worker_process import NotPrepared

__all__ = ["Judge", "JudgeProtocol", "NotPrepared", "RemoteJudge", "feedback", "read_token"]
