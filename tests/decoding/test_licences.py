"""Licence rules."""

import pytest

from cog.decoding.licences import CopyRule, check_rule
from cog.errors import GenerationError

LICENCES = ["CC0-1.0", "CC-BY-SA-4.0", "CC-BY-SA-4.0"]


@pytest.mark.parametrize(
    ("allowed", "denied", "admitted"),
    [
        ((), (), {"CC0-1.0", "CC-BY-SA-4.0"}),
        (("cc0-1.0",), (), {"CC0-1.0"}),
        ((), ("CC0-1.0",), {"CC-BY-SA-4.0"}),
        (("CC0-1.0", "CC-BY-SA-4.0"), ("cc-by-sa-4.0",), {"CC0-1.0"}),
    ],
)
def test_rule_admits(allowed: tuple[str, ...], denied: tuple[str, ...], admitted: set[str]) -> None:
    rule = CopyRule(frozenset(allowed), frozenset(denied))
    check_rule(rule, LICENCES, corpus_id="village")
    assert {licence for licence in LICENCES if rule.admits_licence(licence)} == admitted
    assert rule.is_open == (not allowed and not denied)


def test_unknown_licence_is_refused_with_those_there_are() -> None:
    rule = CopyRule(denied=frozenset({"MIT"}))
    with pytest.raises(GenerationError, match="'MIT'; found: CC-BY-SA-4.0, CC0-1.0"):
        check_rule(rule, LICENCES, corpus_id="village")


def test_rule_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(GenerationError, match="must leave something"):
        check_rule(CopyRule(denied=frozenset({"CC0-1.0"})), ["CC0-1.0"], corpus_id="village")
