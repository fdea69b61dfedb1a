"""Requests: what is asked for goes in, and is held against what the model can do."""

from dataclasses import dataclass
from math import isfinite

from cog.errors import GenerationError
from cog.model.load import CogModel
from cog.model.prefix_encoder import PrefixEncoder
from cog.records import ENTROPY, VERIFY_RULES, Decoding

METHODS = ("greedy", "nucleus")
# settings that must lie in a range, both ends included
RANGES = {
    "temperature": (0.01, 100.0),
    "span_ratio": (0.0, 1.0),
    "relevance_level": (-1.0, 1.0),
    "phrase_bias": (-1e30, 1e30),
    **dict.fromkeys(
        (
            "top_k_documents",
            "max_verbatim_words",
            "span_words",
            "min_bits",
            "relevance_weight",
            "first_token_weight",
            "context_weight",
            "trust",
            "no_repeat_ngram",
        ),
        (0.0, 1e30),
    ),
}


@dataclass(frozen=True, slots=True)
class Request:
    """One text to write.

    :param prefix: The text to continue; may be empty.
    :param decoding: How.
    """

    prefix: str
    decoding: Decoding


def encode_prefix(request: Request, model: CogModel) -> list[int]:
    """The tokens the prefix encoder reads: a prefix's last ones, if it is too long.

    :param request: The text to write.
    :param model: The model.
    :returns: Token ids, the begin token first.
    """
    encoder = model.prefix_encoder
    begin = [] if encoder.begin_token_id is None else [encoder.begin_token_id]
    room = encoder.max_positions - request.decoding.max_new_tokens - len(begin)
    ids: list[int] = model.splitter.encode(request.prefix).tolist()
    return begin + ids[max(0, len(ids) - room) :]


def is_usable_threshold(rule: str, threshold: float) -> bool:
    """Whether a threshold has a meaning under a rule.

    :param rule: One of ``VERIFY_RULES``.
    :param threshold: The threshold.
    :returns: True for 0 to 1, and under ``entropy`` for anything finite from 0.
    """
    return 0.0 <= threshold <= 1.0 or (rule == ENTROPY and threshold >= 0.0 and isfinite(threshold))


def check_request(request: Request, encoder: PrefixEncoder) -> None:
    """Refuse a prefix or a setting that cannot be used.

    :param request: The request.
    :param encoder: The prefix encoder, which limits lengths.
    :raises GenerationError: If it cannot be used.
    """
    _check_prefix(request.prefix, needs_text=encoder.begin_token_id is None)
    decoding = request.decoding
    limit = encoder.max_positions // 2
    checks = [
        (
            1 <= decoding.max_new_tokens <= limit,
            f"max_new_tokens must lie between 1 and {limit}",
            decoding.max_new_tokens,
        ),
        (0.0 < decoding.top_p <= 1.0, "top_p must lie above 0 and up to 1", decoding.top_p),
        (decoding.method in METHODS, "decoding must be greedy or nucleus", decoding.method),
        (
            decoding.verify in VERIFY_RULES,
            f"verify must be one of {', '.join(VERIFY_RULES)}",
            decoding.verify,
        ),
        (
            is_usable_threshold(decoding.verify, decoding.verify_threshold),
            f"verify_threshold must lie between 0 and 1 for {decoding.verify}",
            decoding.verify_threshold,
        ),
        *(
            (low <= getattr(decoding, name) <= high, _describe_range(name), getattr(decoding, name))
            for name, (low, high) in RANGES.items()
        ),
    ]
    for is_met, wanted, found in checks:
        if not is_met:
            raise GenerationError(wanted, found=str(found))


def _describe_range(name: str) -> str:
    low, high = RANGES[name]
    if high < 1e30:
        return f"{name} must lie between {low:g} and {high:g}"
    return f"{name} must be 0 or more" if low == 0.0 else f"{name} must be a finite number"


def _check_prefix(prefix: str, *, needs_text: bool) -> None:
    if any("\ud800" <= character <= "\udfff" for character in prefix):
        raise GenerationError(
            "a prefix must be Unicode text",
            found="a lone surrogate",
            run="give the prefix as UTF-8",
        )
    if needs_text and not prefix:
        raise GenerationError(
            "this model needs a prefix of one token or more",
            found="an empty prefix",
            run="pass --prefix TEXT",
        )
