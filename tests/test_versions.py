"""Versions of outputs: what a stage writes of the tiny corpus is as recorded, or of a new version.

``tests/data/outputs.json`` holds a version and a digest for each stage whose output is exact, and
of the vectors of an index, whose last bits are a processor's own, their mean size.
"""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from cog.corpus.documents import DocumentStore
from cog.corpus.sources import load_source_record
from cog.index.tables.store import StoreReader, get_schemas
from cog.index.versions.manifest import load_manifest
from cog.paths import ProjectPaths
from cog.pipeline_file import VERSIONS

RECORDED = Path(__file__).parent / "data" / "outputs.json"
INEXACT = ("vector", "vectors_hash", "start_vectors", "end_vectors", "start_scales", "end_scales")


def describe_fetch(paths: ProjectPaths) -> object:
    record = load_source_record(paths.corpus("village").raw)
    return [(entry.name, entry.sha256) for entry in record.files]


def describe_prepare(paths: ProjectPaths) -> object:
    report = DocumentStore(paths.corpus("village").documents).load_report()
    return report.digest, report.prompts_digest


def open_tables(paths: ProjectPaths) -> StoreReader:
    manifest = load_manifest(paths.corpus("village"))
    return StoreReader(paths.corpus("village").index / manifest.folder, "village")


def describe_index(paths: ProjectPaths) -> object:
    reader, tables = open_tables(paths), []
    for name, schema in get_schemas(1).items():
        exact = [column for column in schema.names if column not in INEXACT]
        rows = reader.take(name, np.arange(reader.count_rows(name)), columns=exact)
        tables.append((name, schema.names, rows.to_pylist()))
    return tables


STAGES: dict[str, Callable[[ProjectPaths], object]] = {
    "fetch": describe_fetch,
    "prepare": describe_prepare,
    "index": describe_index,
}


@pytest.mark.parametrize("stage", STAGES)
def test_what_a_stage_writes_changes_with_its_version(village: ProjectPaths, stage: str) -> None:
    content = json.dumps(STAGES[stage](village), default=bytes.hex)
    found = {"version": VERSIONS[stage], "digest": sha256(content.encode()).hexdigest()[:16]}
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))[stage]
    assert found == recorded, (
        f"the stage {stage} writes something else: raise its number of VERSIONS in "
        f"cog/pipeline_file.py, and record {found} in tests/data/{RECORDED.name}"
    )


def test_vectors_of_an_index_are_of_the_recorded_size(village: ProjectPaths) -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))["vectors"]
    assert recorded["version"] == VERSIONS["index"]
    reader = open_tables(village)
    row = reader.take("words", np.array([0])).to_pylist()[0]
    for side in ("start", "end"):
        scales = np.frombuffer(row[f"{side}_scales"], dtype=np.float32).astype(np.float64)
        steps = np.frombuffer(row[f"{side}_vectors"], dtype=np.int8).reshape(len(scales), -1)
        sizes = np.linalg.norm(steps * scales[:, None], axis=1)
        assert sizes.mean() == pytest.approx(recorded[side], rel=0.02), side
