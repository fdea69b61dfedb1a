#!/usr/bin/env bash
# On a machine with a GPU: the tests marked gpu, then the benchmarks of decoding, index and training.
# Prints one JSON object; fails if a test or a benchmark does: scripts/gpu_check.sh [CORPUS]
set -euo pipefail

cd "$(dirname "$0")/.."
corpus=${1:-wiki-mini}
[[ -d .venv ]] && PATH="$PWD/.venv/bin:$PATH"
export OMP_WAIT_POLICY=PASSIVE PYTHONPATH="$PWD"

found=$(python -c 'import torch
print("yes" if torch.cuda.is_available() else f"none (torch {torch.__version__})")' 2>/dev/null) ||
    found="no torch; next: make install"
if [[ $found != yes ]]; then
    echo "gpu_check: a GPU that torch can use is needed; found: $found" >&2
    exit 1
fi

python -m cog.cli.main index build "$corpus" --device cuda >&2

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
# what fails is told at the end, and does not hide the rest
python -m pytest -q -n 0 -m gpu --junitxml "$results/tests.xml" >&2 || touch "$results/failed"
run() {
    python -m "benchmarks.$1" "${@:2}" | tail -n 1 >"$results/$1.json" || touch "$results/failed"
}
run decode --corpus "$corpus" --device cuda
run index --corpus "$corpus" --device cuda
run train_step

python - "$results" <<'END'
import json
import sys
from pathlib import Path
from xml.etree import ElementTree

results = Path(sys.argv[1])
suite = ElementTree.parse(results / "tests.xml").getroot().find("testsuite").attrib
counts = {name: int(suite[name]) for name in ("tests", "failures", "errors", "skipped")}
is_whole = not (results / "failed").exists() and counts["tests"] > counts["skipped"]
found = {"ok": is_whole, "tests": counts}
for path in sorted(results.glob("*.json")):
    found[path.stem] = json.loads(path.read_text() or "null")
print(json.dumps(found))
sys.exit(not is_whole)
END
