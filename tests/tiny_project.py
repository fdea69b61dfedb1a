"""A tiny project in a folder: two cards over one text file made for the tests."""

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from cog.paths import ProjectPaths
from cog.pipeline_file import CorpusEntry, PipelineFile, save_pipeline
from cog.records import Decoding

TINY_CORPUS = Path(__file__).parent / "data" / "village.jsonl"
TINY_PARAMS: dict[str, Any] = {
    "model": "models/tiny",
    "fetch": {"retries": 0, "timeout_seconds": 60},
    "prepare": {"prompt_tokens": 8, "reference_tokens": 16},
    "index": {
        "vector_dtype": "int8",
        "batch_tokens": 512,
        "commit_chunks": 8,
        "ivf_threshold_rows": 100000,
        "recall_at": 10,
        "min_recall": 0.9,
        "num_probe_prefixes": 2,
        "keep_versions": 0,
    },
    "generate": {
        "num_prompts": 2,
        "batch_size": 2,
        "precision": "float32",  # what another kind of processor computes alike
        "decoding": "nucleus",
        **{name: value for name, value in asdict(Decoding()).items() if name != "method"},
        "max_new_tokens": 12,
        "top_k_documents": 16,
    },
    "evaluate": {
        "protocol": "default",
        "num_prompts": 4,
        "num_seeds": 1,
        "batch_size": 2,
        "prompt_tokens": 8,
        "generation_tokens": 12,
        "featuriser": "models/tiny/prefix",
        "featuriser_layers": [-1],
        "max_contamination": 0.2,
    },
    "datastore": {
        "context_tokens": 32,
        "overlap_tokens": 8,
        "batch_tokens": 128,
        "flat_threshold_rows": 100000,
        "num_probes": 4,
        "rerank_factor": 2,
        "recall_at": 10,
        "min_recall": 0.8,
        "top_k": 8,
        "weight": 0.25,
        "distance_scale": 0.1,
        "temperature": 1.0,
    },
    "retro": {
        "chunk_tokens": 8,
        "num_neighbours": 2,
        "neighbour_tokens": 12,
        "continuation_tokens": 8,
        "first_cross_layer": 1,
        "cross_layer_step": 1,
        "encoder_layers": 1,
        "window_tokens": 40,
        "windows_per_batch": 4,
        "accumulation_steps": 1,
        "learning_rate": 0.02,
        "gate_rate": 0.02,
        "max_steps": 8,
        "warmup_share": 0.05,
        "final_rate_share": 0.1,
        "weight_decay": 0.0,
        "max_gradient_norm": 1.0,
        "held_out_share": 0.2,
        "validation_batches": 1,
        "validation_steps": 4,
        "checkpoint_steps": 3,
        "precision": "float32",
        "seed": 0,
    },
    "segment": {"source": "corpus"},
    "train": {"profile": "tiny", "profiles": {}},
}
VILLAGE_CARD: dict[str, Any] = {
    "id": "village",
    "title": "A village",
    "description": "Twelve short texts about a village that does not exist.",
    "language": "en",
    "licence": {"id": "CC0-1.0", "url": None, "attribution": None},
    "source": {"type": "files", "path": "texts/village.jsonl", "members": None},
    "format": {
        "kind": "jsonl",
        "encoding": "utf-8",
        "fields": {"id": "id", "title": "title", "text": "text", "url": None, "licence": None},
        "query": None,
        "documents": "row",
        "heading": None,
        "url": None,
        "on_error": "fail",
        "local": None,
    },
    "normaliser": "plain-v1",
    "filters": {"min_words": 5, "max_words": None},
    "deduplicate": "exact",
    "prompts": {"held_out": 0.25, "seed": 0},
    "extends": None,
    "subset": None,
    "index": None,
}
HAMLET_CARD: dict[str, Any] = {
    **VILLAGE_CARD,
    "id": "hamlet",
    "title": "Half of a village",
    **dict.fromkeys(("source", "format", "normaliser", "filters", "deduplicate")),
    "extends": "village",
    "subset": {"proportion": 0.5, "seed": 0},
}


def write_yaml(path: Path, content: object) -> None:
    """Write a YAML file as a person would."""
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def make_project(root: Path) -> ProjectPaths:
    """Write a project with two cards; nothing is built, and the model is absent."""
    paths = ProjectPaths(root)
    paths.cards.mkdir(parents=True)
    write_yaml(paths.card("village"), VILLAGE_CARD)
    write_yaml(paths.card("hamlet"), HAMLET_CARD)
    write_yaml(paths.params, TINY_PARAMS)
    entry = CorpusEntry("village", "texts/village.jsonl")
    corpora = {"village": entry, "hamlet": entry}
    save_pipeline(paths, PipelineFile(watched="models/tiny", corpora=corpora))
    (root / "corpora").mkdir()
    (root / "texts").mkdir()
    shutil.copy(TINY_CORPUS, root / "texts")
    return paths
