import dataclasses
from dataclasses import replace
from typing import Any

import pytest

from cog.errors import ProtocolError
from cog.evaluation.protocol import (
    PAPER_DECODING,
    Protocol,
    check_one_protocol,
    differing_fields,
    make_protocol,
    parse_protocol,
)
from cog.params import Params
from cog.records import Decoding


def test_every_rule_changes_the_digest_and_the_name_does_not(protocol: Protocol) -> None:
    changed: dict[type, Any] = {
        str: lambda value: value + "x",
        int: lambda value: value + 1,
        float: lambda value: value + 1.0,
        bool: lambda value: not value,
        tuple: lambda value: (*value, 99),
    }
    for field in dataclasses.fields(Protocol):
        value = getattr(protocol, field.name)
        other = replace(protocol, **{field.name: changed[type(value)](value)})
        assert (other.digest == protocol.digest) == (field.name == "name"), field.name


def test_stored_protocol_is_the_same_again(protocol: Protocol) -> None:
    again = parse_protocol(protocol.to_json())
    assert again == protocol
    assert again.digest == protocol.digest
    with pytest.raises(ProtocolError, match="judge on one side only"):
        parse_protocol({k: v for k, v in protocol.to_json().items() if k != "judge"})


def test_presets_are_what_paper_and_script_did(params: Params) -> None:
    paper = make_protocol("paper-iclr2023", params.evaluate)
    assert (paper.prompt_tokens, paper.generation_tokens, paper.reference_tokens) == (32, 128, 128)
    assert paper.mauve_scale == 2.0
    assert paper.featuriser == "gpt2-large"
    assert Decoding("nucleus", 0.95, 0, 128, 1024, 0.0) == PAPER_DECODING
    script = make_protocol("authors-script", params.evaluate)
    assert differing_fields(paper, script) == [
        "reference_tokens",
        "has_prefix",
        "max_feature_tokens",
    ]
    assert script.max_feature_tokens == 512
    with pytest.raises(ProtocolError, match="found: 'paper'"):
        make_protocol("paper", params.evaluate)


def test_mixed_protocols_are_refused_naming_the_rule(protocol: Protocol) -> None:
    other = replace(protocol, mauve_scale=5.0)
    check_one_protocol([("a", protocol), ("b", replace(protocol, name="other"))])
    with pytest.raises(ProtocolError, match="mauve_scale 2.0 for a, 5.0 for c"):
        check_one_protocol([("a", protocol), ("b", protocol), ("c", other)])
