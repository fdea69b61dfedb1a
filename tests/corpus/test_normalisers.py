"""Normalisers: what they undo, what they leave, and that they settle."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cog.corpus.normalisers import NORMALISERS, get_normaliser
from cog.errors import InvalidCardError

wikitext = get_normaliser("wikitext-v1")

LINES = [
    # Written for this test in the style of the published files.
    (
        " The well @-@ kept mill ( built 1702 ) ground 1 @,@ 250 @.@ 5 tons , or so . ",
        "The well-kept mill (built 1702) ground 1,250.5 tons, or so.",
    ),
    (' He wrote " The Mill " in 1931 . ', 'He wrote "The Mill" in 1931.'),
    (' " Go , " she said , " now ! " ', '"Go," she said, "now!"'),
    (
        " The miller 's wife didn 't , and they 've gone . ",
        "The miller's wife didn't, and they've gone.",
    ),
    (" O 'Neill 's K 'awiil and l 'Étang ", "O'Neill's K'awiil and l'Étang"),
    (' the song " River " \'s end ', 'the song "River"\'s end'),
    (" It cost $ 5 , or £ 3 @.@ 50 ; issue # 7 . ", "It cost $5, or £3.50; issue #7."),
    (" 79 % of it [ sic ] : done ? Yes ! ", "79% of it [sic]: done? Yes!"),
    (" at 16 : 30 on a 3 : 1 scale ", "at 16:30 on a 3: 1 scale"),
    (" = = = Early life = = = ", "Early life"),
    (" the ships ' crews ", "the ships' crews"),
    # in doubt: left as it is
    (" the ' old mill ' there ", "the ' old mill ' there"),
    (' a 12 " gun ', 'a 12 " gun'),
    (' odd " one , " two " three ', 'odd " one, " two " three'),
    (" 2011 – 12 and km / h ", "2011 – 12 and km / h"),
    (" the <unk> of <unk> 's mill ... ", "the <unk> of <unk>'s mill ..."),
    (" = = A = b = = ", "A = b"),
    (" = Goals ; A = ", "= Goals; A ="),
    (" @-@ alone ", "@-@ alone"),
    (" x @-@ ", "x @-@"),
    (" burn ( % TBSA ) ", "burn (% TBSA)"),
    (" = = = lopsided = = ", "= = = lopsided = ="),
    (" mail me @ home ", "mail me @ home"),
]


@pytest.mark.parametrize(("line", "wanted"), LINES)
def test_wikitext_undoes_what_is_certain(line: str, wanted: str) -> None:
    assert wikitext(line) == wanted


def test_wikitext_keeps_lines_apart() -> None:
    assert wikitext(" a , \n b . \n") == "a,\nb."


tokens = st.sampled_from(
    ["@-@", "@,@", "@.@", ",", ".", ";", ":", "!", "?", "(", ")", "[", "]", "%", '"', "'", "'s"]
    + ["'Neill", "$", "#", "5", "16", "30", "<unk>", "=", "mill", "ships", "–", "", "\n", "é"]
)


@settings(max_examples=600, deadline=None)
@given(st.lists(tokens, max_size=16).map(" ".join))
def test_every_normaliser_settles_on_wikitext(text: str) -> None:
    for normalise in NORMALISERS.values():
        once = normalise(text)
        assert normalise(once) == once


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_wikitext_changes_spaces_and_marks_only(text: str) -> None:
    def strip(value: str) -> str:
        return "".join(value.replace("@-@", "-").split()).replace("=", "").replace("@", "")

    assert strip(wikitext(text)) == strip(text)


def test_plain_leaves_inner_space_and_unicode_alone() -> None:
    text = " \n a  b\u00a0c\u2060d e\u0301 ﬁ\r\nf\rg \u2028h\n\n"
    assert NORMALISERS["plain-v1"](text) == "a  b\u00a0c\u2060d e\u0301 ﬁ\nf\ng \u2028h"


def test_other_normalisers_mend_their_corpus() -> None:
    assert NORMALISERS["eu-law-v1"]("Subject matter` 1. The\u00a0purpose") == (
        "Subject matter 1. The purpose"
    )
    assert NORMALISERS["opus-law-v1"]("EXPENSES _BAR_ 71000") == "EXPENSES | 71000"
    text = "<<beginOptional;name=x>>By <<var;name=a;original=ME;match=.+>>, <b><<endOptional>>"
    assert NORMALISERS["spdx-v1"](text) == "By ME, <b>"


def test_an_unknown_normaliser_names_the_nearest() -> None:
    with pytest.raises(InvalidCardError, match=r"found: 'wikitext-v2'; next: .* wikitext-v1\?"):
        get_normaliser("wikitext-v2")
