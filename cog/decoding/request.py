"""Requests: what is asked for goes in, and is held against what the model can do."""

from dataclasses import asdict, dataclass, replace

from cog.errors import GenerationError
from cog.model.load import CogModel
from cog.model.prefix_encoder import PrefixEncoder
from cog.reading import FieldError, read_record
from cog.records import Decoding, check_threshold


@dataclass(frozen=True, slots=True)
class Request:
    """One text to write: the prefix to continue, which may be empty, and how."""

    prefix: str
    decoding: Decoding


def repeat_request(request: Request, num_texts: int) -> list[Request]:
    """Ask for several texts, with seeds that count up."""
    first = request.decoding
    return [
        replace(request, decoding=replace(first, seed=first.seed + extra))
        for extra in range(num_texts)
    ]


def encode_prefix(request: Request, model: CogModel) -> list[int]:
    """The tokens the prefix encoder reads, the begin token first; of too long a prefix the last."""
    encoder = model.prefix_encoder
    begin = [] if encoder.begin_token_id is None else [encoder.begin_token_id]
    room = encoder.max_positions - request.decoding.max_new_tokens - len(begin)
    ids: list[int] = model.splitter.encode(request.prefix).tolist()
    return begin + ids[max(0, len(ids) - room) :]


def check_request(request: Request, encoder: PrefixEncoder) -> None:
    """Refuse a prefix or a setting that cannot be used; the prefix encoder limits lengths."""
    _check_prefix(request.prefix, needs_text=encoder.begin_token_id is None)

    def check(decoding: Decoding) -> None:
        check_threshold(decoding)
        if decoding.max_new_tokens > (limit := encoder.max_positions // 2):
            wanted = f"must be a whole number from 1 to {limit}"
            raise FieldError("max_new_tokens", wanted=wanted, found=str(decoding.max_new_tokens))

    read_record(Decoding, asdict(request.decoding), error=GenerationError, check=check)


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
