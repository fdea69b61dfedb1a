"""The Transformer baseline against transformers' own generate, and against itself in batches."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmarks.peer import load_network
from cog.baselines.transformer import TransformerGenerator
from cog.decoding.request import Request, encode_prefix
from cog.errors import GenerationError
from cog.model.base import get_base_folder
from cog.model.config import load_config
from cog.model.load import CogModel
from cog.paths import ProjectPaths
from cog.records import Decoding
from tests.choices import Choices, assert_same_choices, record_choices

GREEDY = Decoding("greedy", 0.95, 0, 20, 16, 0.0)
NUCLEUS = replace(GREEDY, method="nucleus")
PREFIXES = ("The mill", "", "A house by the river and a bridge over it", "Ünïcode 🙂 text")


@pytest.fixture
def transformer(tiny_cog_model: CogModel) -> TransformerGenerator:
    return TransformerGenerator(tiny_cog_model, corpus_id="village")


def test_greedy_equals_generate_of_transformers(
    village: ProjectPaths, tiny_cog_model: CogModel, transformer: TransformerGenerator
) -> None:
    folder = village.root / "models" / "tiny"
    base = get_base_folder(load_config(folder).prefix_base, model_folder=folder)
    peer = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    peer.load_state_dict(load_network(folder).state_dict())
    wanted = []
    for prefix in PREFIXES:
        ids = encode_prefix(Request(prefix, GREEDY), tiny_cog_model)
        output = peer.eval().generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            do_sample=False,
            max_new_tokens=20,
            min_new_tokens=20,
            eos_token_id=None,
            pad_token_id=0,
            suppress_tokens=tiny_cog_model.splitter.special_token_ids.tolist(),
            output_scores=True,
            return_dict_in_generate=True,
        )
        probabilities = [scores[0].double().softmax(0).numpy() for scores in output.scores]
        wanted.append(Choices(probabilities, [None] * 20, output.sequences[0, len(ids) :].tolist()))
    with record_choices() as found:
        generations = transformer.generate([Request(prefix, GREEDY) for prefix in PREFIXES])
    for number in assert_same_choices(found, wanted):
        spelled = tiny_cog_model.splitter.decode(np.array(wanted[number].chosen))
        assert generations[number].text == spelled.decode(errors="replace")


@pytest.mark.parametrize("decoding", [GREEDY, NUCLEUS])
def test_a_batch_writes_what_each_text_is_alone(
    transformer: TransformerGenerator, decoding: Decoding
) -> None:
    requests = [
        Request(prefix, replace(decoding, max_new_tokens=20 - 3 * i))
        for i, prefix in enumerate(PREFIXES)
    ]
    with record_choices() as found:
        together = transformer.generate(requests)
    with record_choices() as wanted:
        alone = [transformer.generate([request])[0] for request in requests]
    for number in assert_same_choices(found, wanted):
        assert together[number].text == alone[number].text
    assert [each.num_tokens for each in together] == [20, 17, 14, 11]
    assert all(each.text == "".join(s.text for s in each.segments) for each in together)


def test_a_low_temperature_is_greedy(transformer: TransformerGenerator) -> None:
    with record_choices() as cold:
        transformer.generate(
            [Request(prefix, replace(NUCLEUS, temperature=0.01)) for prefix in PREFIXES]
        )
    with record_choices() as greedy:
        transformer.generate([Request(prefix, GREEDY) for prefix in PREFIXES])
    wanted = []
    for own, other in zip(cold, greedy, strict=True):
        powers = [(each / each.max()) ** 100 for each in other.probabilities]
        sharpened = [each / each.sum() for each in powers]
        wanted.append(Choices(sharpened, own.draws, other.chosen))
    assert_same_choices(cold, wanted, atol=1e-2)


def test_seeds_change_the_text(transformer: TransformerGenerator) -> None:
    texts = {
        transformer.generate([Request("The mill", replace(NUCLEUS, seed=seed))])[0].text
        for seed in range(4)
    }
    assert len(texts) == 4


def test_a_setting_that_cannot_be_is_refused(transformer: TransformerGenerator) -> None:
    with pytest.raises(GenerationError, match="top_p"):
        transformer.generate([Request("The mill", replace(NUCLEUS, top_p=0.0))])


def test_no_request_is_no_text(transformer: TransformerGenerator) -> None:
    assert transformer.generate([]) == []
