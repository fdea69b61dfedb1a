"""WikiText as it is written: tokenised text goes in, text with ordinary spacing comes out.

WikiText is Wikipedia text cut into tokens with single spaces between them, Moses-like: ``@-@`` is a
hyphen inside a word, ``@,@`` and ``@.@`` are marks inside a number. Only what is certain is undone;
dashes, slashes, lone apostrophes that may be quotation marks, and ``<unk>`` stay as they are.
"""

import re

_JOINERS = {"@-@": "-", "@,@": ",", "@.@": "."}
_CLOSERS = frozenset(",.;:!?)]")
_OPENERS = frozenset("([")
_CURRENCIES = frozenset("$£€¥₹₤₱#")
_SECTION = re.compile(r"((?:= ){2,})(\S(?:.*?\S)??)((?: =){2,})")
_IN_WORD = re.compile(r"'[^\W\d_].*")  # 's 't 're 'Connor: a quotation mark is a token of its own
_HOURS = re.compile(r"\d{1,2}")
_MINUTES = re.compile(r"\d{2}")


def undo_wikitext(text: str) -> str:
    """Undo tokenisation line by line, until nothing changes."""
    return "\n".join(_settle(line) for line in text.split("\n"))


def _settle(line: str) -> str:
    # Every change makes the line shorter, so this ends.
    while (undone := _undo_line(line)) != line:
        line = undone
    return line


def _undo_line(line: str) -> str:
    line = line.strip(" ")
    section = _SECTION.fullmatch(line)
    if section and len(section[1]) == len(section[3]):
        line = section[2]
    tokens = line.split(" ")
    glued_left = [False] * (len(tokens) + 1)  # no space between token i - 1 and token i
    for index in range(len(tokens)):
        _glue_token(tokens, index, glued_left)
    _glue_quotes(tokens, glued_left)
    _glue_possessive(tokens, glued_left)
    pieces: list[str] = []
    for index, token in enumerate(tokens):
        is_joined = glued_left[index] and glued_left[index + 1]
        if index > 0 and not glued_left[index]:
            pieces.append(" ")
        pieces.append(_JOINERS[token] if token in _JOINERS and is_joined else token)
    return "".join(pieces)


def _glue_token(tokens: list[str], index: int, glued_left: list[bool]) -> None:
    token = tokens[index]
    before = tokens[index - 1] if index > 0 else ""
    after = tokens[index + 1] if index + 1 < len(tokens) else ""
    is_clock = token == ":" and _HOURS.fullmatch(before) and _MINUTES.fullmatch(after)
    if token in _JOINERS or is_clock:
        if before and after:
            glued_left[index] = glued_left[index + 1] = True
    elif token in _CLOSERS or (token == "%" and before[-1:].isdigit()):
        glued_left[index] |= bool(before)
    elif token in _OPENERS or (token in _CURRENCIES and after[:1].isdigit()):
        glued_left[index + 1] |= bool(after)
    elif _is_apostrophe(token, before):
        glued_left[index] = True


def _is_apostrophe(token: str, before: str) -> bool:
    return bool(_IN_WORD.fullmatch(token)) and (before[-1:].isalnum() or before[-1:] in ')>"')


def _glue_quotes(tokens: list[str], glued_left: list[bool]) -> None:
    # Quotation marks come in pairs; where a pair would open before a stop, none is touched.
    quotes = [index for index, token in enumerate(tokens) if token == '"']
    openers, closers = quotes[::2], quotes[1::2]
    if len(quotes) % 2 or any(tokens[index + 1] in _CLOSERS for index in openers):
        return
    if any(tokens[index - 1] in _OPENERS for index in closers):
        return
    for opener, closer in zip(openers, closers, strict=True):
        if closer - opener > 1:
            glued_left[opener + 1] = glued_left[closer] = True
            after = tokens[closer + 1] if closer + 1 < len(tokens) else ""
            glued_left[closer + 1] |= _IN_WORD.fullmatch(after) is not None


def _glue_possessive(tokens: list[str], glued_left: list[bool]) -> None:
    # A single apostrophe in a line closes nothing, so after an s it is a plural's.
    if tokens.count("'") == 1:
        index = tokens.index("'")
        if index > 0 and tokens[index - 1][-1:] == "s":
            glued_left[index] = True
