"""The shortcut by which the proof of the gate counts alarms."""

from __future__ import annotations

import numpy as np
import pytest
from proof.gate import RULES, Rule, _changes


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_alarms_are_those_of_the_whole_test(rule: Rule) -> None:
    rng, alarms = np.random.default_rng(3), []
    for i in range(60):
        n, churn, shifts = (5, 15, 40)[i % 3], (0.05, 0.2)[i % 2], (1, 4)[i // 2 % 2]
        lost = np.full(shifts, churn / 2 + rule.limit + (0.15 if i % 5 == 0 else 0.0))
        drops = _changes(rng, n, lost, churn / 2, rule.images)
        alarms.append(rule.alarm(drops, i, 300))
        assert alarms[-1] == rule.test(drops, i, 300).broken.any()
    assert 3 <= sum(alarms) <= 40
