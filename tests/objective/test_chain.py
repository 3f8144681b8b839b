import torch

from drkernel.objective.advantages import trloo
from drkernel.objective.filters import decide
from drkernel.objective.loss import count, policy_loss, token_weights
from drkernel.objective.mismatch import rollout_correction
from drkernel.objective.returns import reward_to_go
from drkernel.objective.rewards import profiling
from drkernel.objective.rollouts import tabulate
from drkernel.types import Trajectory, Turn, Verdict

ANSWERS = (
    Verdict("incorrect", "wrong_values"),
    Verdict("hack", "no_triton_launch", speedup=9.0),
    Verdict("ok", "lazy", speedup=1.0, coverage=0.0, lazy=True),
    Verdict("ok", "faster", speedup=2.0, coverage=0.9),
)


def test_a_policy_learns_to_answer_well_from_these_functions_alone():
    """Two turns, one token each, four answers: from verdicts to the gradient, as `objective/__init__.py` tells it."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.zeros(2, 4, requires_grad=True)
    turns, prompts, samples = 2, 4, 8
    trajectory_ids = torch.arange(prompts * samples).repeat_interleave(turns)
    turn_ids = torch.arange(prompts * samples * turns)
    for _ in range(40):
        chosen = torch.multinomial(logits.detach().softmax(-1), prompts * samples, True, generator=generator).T
        trajectories = [
            Trajectory("task", row % prompts, row, [Turn([], [a], [0.0], verdict=ANSWERS[a]) for a in answers])
            for row, answers in enumerate(chosen.tolist())
        ]
        table = tabulate(trajectories, profiling)
        returns = reward_to_go(table.rewards, table.turn_mask)
        decision = decide(
            {"zero_variance": {}, "prs": {}}, table, torch.rand(len(table.groups), turns, generator=generator)
        )
        advantages = trloo(returns, table.turn_mask, table.groups, decision.in_baseline)

        logp = logits.log_softmax(-1)[torch.arange(turns), chosen].flatten()
        keep, _ = rollout_correction(logp, logp.detach(), turn_ids, trajectory_ids, decision.keep.flatten())
        weights = token_weights("sequence_mean_token_sum", keep, turn_ids, count(keep, turn_ids), divisor=1.0)
        loss, _ = policy_loss(logp, logp.detach(), advantages.flatten(), weights)
        logits.data -= torch.autograd.grad(loss, logits)[0]
    assert (logits.softmax(-1)[:, 3] > 0.9).all()
