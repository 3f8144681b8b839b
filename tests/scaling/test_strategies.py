"""Strategies as tables: after these verdicts, which turns are asked for, and what do their prompts hold."""

import pytest

from drkernel.config import ScalingConfig, scaling
from drkernel.scaling.strategies import KEEP, STRATEGIES, VALUES, Ask, JudgedCall, Strategy


def chain(*rewards, **others):
    """The turns of a single chain; `others` are lists of speed-ups, coverages, tokens or seconds."""
    values = [{key: column[call] for key, column in others.items()} for call in range(len(rewards))]
    plain = {"speedup": 0.0, "coverage": 0.0, "tokens": 100, "seconds": 1.0}
    return [JudgedCall(call, 0, reward, **plain | values[call]) for call, reward in enumerate(rewards)]


def spread(chains, number):
    """The first `number` turns of so many chains, call after call."""
    return [JudgedCall(call, call % chains, 1.0, 0.0, 0.0, 100, 1.0) for call in range(number)]


def asked(history, full=(), **options):
    """(call, chain, turn, shown) of what is wanted next."""
    asks = Strategy(ScalingConfig(**options)).next(history, frozenset(full))
    return [(ask.call, ask.chain, ask.turn, ask.shown) for ask in asks]


def shown(history, **options):
    return Strategy(ScalingConfig("managed", budget=99, **options)).next(history)[0].shown


def test_single_gives_one_answer_whatever_the_budget():
    assert asked([], name="single", budget=8) == [(0, 0, 0, ())]
    assert asked(chain(0.0), name="single", budget=8) == []


def test_parallel_asks_for_all_answers_at_once_and_never_shows_a_turn():
    assert asked([], name="parallel", budget=3) == [(0, 0, 0, ()), (1, 1, 0, ()), (2, 2, 0, ())]
    judged = [JudgedCall(1, 1, 4.0, 2.0, 1.0, 100, 1.0)]
    assert asked(judged, name="parallel", budget=3) == [(0, 0, 0, ()), (2, 2, 0, ())]
    assert asked(spread(3, 3), name="parallel", budget=3) == []


def test_sequential_shows_every_earlier_turn_until_the_budget_or_the_context_ends():
    assert asked([], name="sequential") == [(0, 0, 0, ())]
    assert asked(chain(0.0, 3.0, 1.0), name="sequential") == [(3, 0, 3, (0, 1, 2))]
    assert asked(chain(*[0.0] * 8), name="sequential", budget=8) == []
    assert asked(chain(0.0, 3.0), full=[0], name="sequential") == []


def test_a_full_sequential_prompt_may_leave_nothing_out():
    (ask,) = Strategy(ScalingConfig("sequential")).next(chain(0.0, 1.0))
    assert ask.smaller() is None


def test_mixture_goes_on_with_each_chain_by_itself():
    options = {"name": "mixture", "chains": 2, "budget": 6}
    assert asked([], **options) == [(0, 0, 0, ()), (1, 1, 0, ())]
    first_of_chain_1 = [JudgedCall(1, 1, 0.0, 0.0, 0.0, 100, 1.0)]
    assert asked(first_of_chain_1, **options) == [(0, 0, 0, ()), (3, 1, 1, (1,))]
    assert asked(spread(2, 5), **options) == [(5, 1, 2, (1, 3))]
    assert asked(spread(2, 6), **options) == []
    assert asked(spread(2, 4), full=[0], **options) == [(5, 1, 2, (1, 3))]


def test_mixture_shares_a_budget_that_does_not_divide():
    assert asked(spread(4, 8), name="mixture", chains=4, budget=10) == [(8, 0, 2, (0, 4)), (9, 1, 2, (1, 5))]


@pytest.mark.parametrize(
    ("rewards", "window", "expected"),
    [
        ([], 4, ()),
        ([0.0], 4, (0,)),
        ([1.0, 0.0, 2.0, 3.0], 4, (0, 1, 2, 3)),
        ([1.0, 0.0, 2.0, 3.0, 2.5], 4, (0, 2, 3, 4)),
        ([5.0, 0.0, 4.0, 0.0, 0.0, 0.0], 2, (0, 2)),
        ([0.0, 0.0, 0.0, 0.0], 2, (2, 3)),  # of equals the later: failures do not repeat one prompt
        ([2.0, 1.0, 1.0, 2.0], 3, (0, 2, 3)),
        ([1.0, 2.0], 1, (1,)),
    ],
)
def test_managed_shows_the_best_turns_in_the_order_in_which_they_were_played(rewards, window, expected):
    assert shown(chain(*rewards), window=window) == expected


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([0.0, 3.0], (0, 1)),
        ([3.0, 0.0, 2.0, 2.0, 0.0], (2, 3)),
        ([3.0, 0.0, 0.0, 3.0], (0, 1)),  # of equals the earliest, as in the paper's code
        ([0.0, 0.0, 0.0, 3.0], (2, 3)),
    ],
)
def test_managed_window_shows_the_consecutive_turns_with_the_largest_sum(rewards, expected):
    assert shown(chain(*rewards), window=2, keep="window") == expected


def test_managed_last_shows_the_last_turns():
    assert shown(chain(9.0, 1.0, 0.0, 0.0), window=2, keep="last") == (2, 3)


def test_managed_ranks_by_what_it_is_told():
    history = chain(3.0, 2.0, 4.0, speedup=[1.0, 3.0, 2.0], coverage=[0.9, 0.2, 0.2])
    assert shown(history, window=1, by="reward") == (2,)
    assert shown(history, window=1, by="speedup") == (1,)
    assert shown(history, window=1, by="coverage") == (0,)
    assert shown(history, window=2, by="coverage") == (0, 2)  # equal coverage: the better reward
    assert shown(history, window=2, by="coverage", keep="window") == (0, 1)


@pytest.mark.parametrize(
    ("keep", "dropped"), [("top", [(0, 2, 3), (2, 3), (2,), ()]), ("last", [(1, 2, 3), (2, 3), (3,), ()])]
)
def test_a_managed_prompt_that_is_too_long_loses_the_worst_or_the_oldest_turns_first(keep, dropped):
    (ask,) = Strategy(ScalingConfig("managed", keep=keep)).next(chain(1.0, 0.0, 3.0, 2.0))
    seen = []
    while (ask := ask.smaller()) is not None:
        seen.append(ask.shown)
    assert seen == dropped


def test_managed_goes_on_to_its_budget():
    assert asked(chain(*[1.0] * 7), name="managed", budget=8)[0][:3] == (7, 0, 7)
    assert asked(chain(*[1.0] * 8), name="managed", budget=8) == []


def test_limits_and_stop_rules():
    history = chain(0.0, 2.0, 1.0, 1.5, speedup=[0.0, 1.3, 0.9, 1.1], tokens=[300, 100, 100, 100])
    goes_on = {"tokens": 601, "seconds": 4.5, "stop_at": 1.4, "patience": 3}
    stops = {"tokens": 600, "seconds": 4.0, "stop_at": 1.3, "patience": 2}
    for key, value in stops.items():
        assert asked(history, name="sequential", **{key: goes_on[key]}), key
        assert not asked(history, name="sequential", **{key: value}), key
    assert asked([], name="sequential", **stops), "the first call is always made"


def test_patience_counts_from_the_first_of_the_best():
    assert asked(chain(2.0, 2.0), name="managed", patience=2) and not asked(
        chain(2.0, 2.0, 2.0), name="managed", patience=2
    )
    assert asked(chain(0.0, 0.0, 1.0), name="managed", patience=2)


def test_with_a_stop_rule_calls_wait_for_each_other_since_each_may_be_the_last():
    assert asked([], name="parallel", stop_at=2.0) == [(0, 0, 0, ())]
    assert asked(spread(8, 1), name="parallel", stop_at=2.0) == [(1, 1, 0, ())]
    assert asked(spread(2, 2), name="mixture", chains=2, patience=5) == [(2, 0, 1, (0,))]
    assert asked(spread(2, 2), full=[0], name="mixture", chains=2, patience=5) == [(3, 1, 1, (1,))]


def test_the_configuration_offers_what_there_is():
    assert (set(scaling.STRATEGIES), scaling.KEEP, scaling.VALUES) == (set(STRATEGIES), tuple(KEEP), tuple(VALUES))


def test_labels_tell_variants_apart():
    options = [{}, {"keep": "last"}, {"by": "coverage"}, {"window": 2}, {"name": "mixture"}, {"stop_at": 1.5}]
    labels = [Strategy(ScalingConfig(**each)).label for each in options]
    assert len(set(labels)) == len(labels) and labels[0] == "managed"
    assert Strategy(ScalingConfig(label="ours")).label == "ours"


def test_smaller_keeps_the_order_of_the_prompt():
    assert Ask(5, 0, 5, shown=(1, 2, 4), droppable=(2, 1, 4)).smaller() == Ask(5, 0, 5, shown=(1, 4), droppable=(1, 4))
