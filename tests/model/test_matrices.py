"""Lighter matrices against those in float32."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from cog.errors import CheckpointError
from cog.model.base_form import read_form
from cog.model.integers import is_int8_exact
from cog.model.llama import LlamaNetwork, is_llama
from cog.model.matrices import Matrix, can_pack, choose_precision
from cog.model.modules import CausalModules
from cog.model.prefix_encoder import PrefixEncoder
from cog.model.protocols import CausalNetwork
from cog.model.weights import TrainedTensors
from cog.records import AUTO, BFLOAT16, FLOAT32, INT8
from tests.devices import NEEDS_GPU
from tests.model_fixtures import WIDTH, make_tiny_model

CPU, GPU = torch.device("cpu"), torch.device("cuda")
NEEDS_INT8 = pytest.mark.skipif(not is_int8_exact(), reason="needs a processor with VNNI or AMX")
LIGHT = (BFLOAT16, pytest.param(INT8, marks=NEEDS_INT8))
IDS = [[3, 17, 40, 41, 42, 99, 7, 8], [5], [7, 8, 9, 10, 11, 12, 13, 14, 15]]


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"), architecture=request.param)


def make_encoder(
    folder: Path, precision: str, device: torch.device = CPU, *, keeps_modules: bool = False
) -> PrefixEncoder:
    """An encoder whose weights are large enough for choices that are far from even."""
    form = read_form(folder / "prefix")
    assert form is not None
    network: CausalNetwork
    if is_llama(form) and not keeps_modules:
        large = {n: 15 * each if each.dim() > 1 else each for n, each in form.tensors.items()}
        trained = TrainedTensors(large, {}, scale=1.0, device=device)
        network = LlamaNetwork(form, trained, precision)
    else:
        model = AutoModelForCausalLM.from_pretrained(folder / "prefix")
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(15)
        network = CausalModules(
            model, precision=precision, device=device, keeps_modules=keeps_modules
        )
    projection = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(3))
    return PrefixEncoder(network, query_projection=projection, begin_token_id=None)


def read_all(encoder: PrefixEncoder) -> torch.Tensor:
    return encoder.append(encoder.new_cache(batch=len(IDS), capacity=4), IDS)


@pytest.mark.parametrize("precision", LIGHT)
def test_next_token_is_chosen_nearly_alike(folder: Path, precision: str) -> None:
    plain, light = make_encoder(folder, FLOAT32), make_encoder(folder, precision)
    exact, found = (each.token_logits(read_all(each)).softmax(1) for each in (plain, light))
    variation = 0.5 * (found - exact).abs().sum(1)
    assert exact.max(dim=1).values.mean() > 0.05  # a flat distribution would hide any error
    assert 0 < variation.mean() < 0.04


@pytest.mark.parametrize("keeps_modules", [True, False])
@pytest.mark.parametrize("precision", [FLOAT32, *LIGHT])
def test_what_flows_between_matrices_stays_in_float32(
    folder: Path, precision: str, keeps_modules: bool
) -> None:
    encoder = make_encoder(folder, precision, keeps_modules=keeps_modules)
    states = read_all(encoder)
    assert states.dtype == encoder.token_logits(states).dtype == torch.float32
    weight = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(3))
    start, end = encoder.phrase_queries(states)
    torch.testing.assert_close(torch.cat([start, end], dim=1), states @ weight.T)


@pytest.mark.parametrize("precision", [FLOAT32, *LIGHT])
def test_modules_keep_all_but_matrices_in_float32(folder: Path, precision: str) -> None:
    model = make_encoder(folder, precision, keeps_modules=True).get_modules()
    plain = AutoModelForCausalLM.from_pretrained(folder / "prefix")
    for name, buffer in plain.named_buffers():  # the frequencies of rotations, for one
        assert torch.equal(model.get_buffer(name), buffer)
    for name, parameter in model.named_parameters():
        assert parameter.dtype == torch.float32, name


@pytest.mark.parametrize("keeps_modules", [True, False])
@pytest.mark.parametrize("precision", [FLOAT32, *LIGHT])
def test_no_weight_is_held_twice(precision: str, keeps_modules: bool, tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path, architecture="gpt2")
    model = make_encoder(folder, precision, keeps_modules=keeps_modules).get_modules()
    linear = [each for each in model.base_model.modules() if type(each).__name__ == "Conv1D"]
    assert bool(linear) == (keeps_modules and precision == FLOAT32)
    held = {each.data_ptr(): each for each in model.parameters()}
    dims = [each.shape for each in held.values() if each.dim() == 2]
    if not keeps_modules:  # embeddings alone; what multiplies is in the matrices
        assert all(min(shape) == WIDTH and max(shape) > 3 * WIDTH for shape in dims), dims


@pytest.mark.parametrize("precision", [FLOAT32, BFLOAT16])
def test_packed_matrices_give_what_plain_ones_do(precision: str) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(48, 20)
    for shape in ((1, 48), (3, 48), (2, 5, 48), (1, 70, 48)):
        states = torch.randn(shape)
        with torch.inference_mode():
            plain = Matrix.read(layer.weight.detach(), layer.bias.detach(), precision)(states)
            found = Matrix.read(layer.weight.detach(), layer.bias.detach(), precision).pack()(
                states
            )
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, plain, atol=1e-2, rtol=1e-2)


def test_only_float_weights_on_a_cpu_are_packed() -> None:
    assert not can_pack(torch.zeros(4, 4, dtype=torch.int8))
    assert not can_pack(torch.zeros(4, 4, device="meta"))


@pytest.mark.gpu
@NEEDS_GPU
@pytest.mark.parametrize(("precision", "tolerance"), [(FLOAT32, 1e-3), (BFLOAT16, 0.04)])
def test_a_gpu_chooses_as_a_processor_does(folder: Path, precision: str, tolerance: float) -> None:
    plain, encoder = make_encoder(folder, FLOAT32), make_encoder(folder, precision, GPU)
    exact = plain.token_logits(read_all(plain)).softmax(1)
    found = encoder.token_logits(read_all(encoder)).softmax(1).cpu()
    assert 0.5 * (found - exact).abs().sum(1).mean() < tolerance


@pytest.mark.parametrize("precision", [FLOAT32, *LIGHT])
def test_modules_give_what_packed_matrices_give(folder: Path, precision: str) -> None:
    fast = make_encoder(folder, precision)
    hooked = make_encoder(folder, precision, keeps_modules=True)
    torch.testing.assert_close(read_all(fast), read_all(hooked), atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("precision", [FLOAT32, *LIGHT])
def test_joined_layers_give_theirs_side_by_side(precision: str) -> None:
    torch.manual_seed(0)
    matrices = [
        Matrix.read(torch.randn(num_out, 8), torch.randn(num_out), precision)
        for num_out in (6, 2, 4)
    ]
    states = torch.randn(3, 8)
    expected = torch.cat([matrix(states) for matrix in matrices], dim=1)
    torch.testing.assert_close(Matrix.join(matrices)(states), expected)


@NEEDS_INT8
def test_extreme_weights_and_inputs_are_multiplied_right() -> None:
    weight = torch.tensor([[1e4], [-1e-6], [0.0]]).expand(3, 64)
    output = Matrix.read(weight, None, INT8)(torch.full((1, 1, 64), 5.0))
    torch.testing.assert_close(output, torch.tensor([[[64 * 5e4, -64 * 5e-6, 0.0]]]))


@pytest.mark.parametrize("name", ["avx512_bf16", "amx_bf16", "avx512_vnni"])
def test_auto_is_bfloat16_where_a_processor_has_instructions_for_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {name: True})
    assert choose_precision(AUTO, CPU) == (BFLOAT16 if name.endswith("bf16") else FLOAT32)


@pytest.mark.parametrize("precision", [FLOAT32, *LIGHT])
def test_what_is_asked_for_is_taken(precision: str) -> None:
    assert choose_precision(precision, CPU) == precision


def test_int8_is_refused_where_a_processor_saturates() -> None:
    code = (
        "import torch; from cog.model.matrices import *; "
        "largest = torch.full((1, 64), 127.0); matrix = Matrix.read(largest, None, 'int8'); "
        "print(round(float(matrix(largest)) / 64 / 127**2, 3)); choose_precision('int8', CPU)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"},
        check=False,
    )
    assert (run.stdout.strip() == "1.0") == (run.returncode == 0)
    assert run.returncode == 0 or "needs a CPU that multiplies it exactly" in run.stderr


def test_int8_on_a_gpu_is_refused() -> None:
    with pytest.raises(CheckpointError, match="--precision int8 needs a CPU"):
        choose_precision(INT8, GPU)
