"""What a run in MLflow says: an evaluation goes in, params, metrics and tables come out."""

import hashlib
import json
from typing import Any

from cog.evaluation.records import EvaluationResult


def list_metrics(result: EvaluationResult) -> list[tuple[str, float, int]]:
    """Scores with their intervals and references: name, value and step, which is a seed."""
    found: list[tuple[str, float, int]] = [("num_prompts", len(result.prompt_ids), 0)]
    for score in result.scores:
        found.append((score.name, score.mean, 0))
        if score.low < score.high:
            found += [(f"{score.name}.low", score.low, 0), (f"{score.name}.high", score.high, 0)]
        if score.reference is not None:
            found.append((f"{score.name}.reference", score.reference, 0))
        if len(score.per_seed) > 1:
            seeds = zip(result.protocol.seeds, score.per_seed, strict=True)
            found += [(f"{score.name}.by_seed", value, seed) for seed, value in seeds]
    return found + [(f"seconds/{part}", value, 0) for part, value in result.seconds.items()]


def make_tags(result: EvaluationResult) -> dict[str, str]:
    """What runs are searched by: models and indexes by digest."""
    return {
        "cog.system": str(result.system),
        "cog.corpus": result.corpus,
        "cog.prompts": result.prompt_corpus,
        "cog.protocol": result.protocol.name,
        "cog.index": result.system.index,
        "cog.model": result.system.model,
        "cog.smoke": str(result.system.is_smoke).lower(),
    }


def list_inputs(result: EvaluationResult) -> list[tuple[str, str, str]]:
    """What was read: name, digest and use."""
    return [
        (f"documents of {result.corpus}", result.system.documents, "documents"),
        (f"index of {result.corpus}", result.system.index, "index"),
        (f"prompts of {result.prompt_corpus}", result.prompts_digest, "prompts"),
    ]


def list_params(result: EvaluationResult) -> dict[str, str]:
    """The system and the protocol, as text."""
    system = result.system.to_json()
    settings = system.pop("settings")
    described = {"prompt_corpus": result.prompt_corpus}
    described |= {f"system/{name}": str(value) for name, value in system.items()}
    described |= {f"system/{name}": str(value) for name, value in settings.items()}
    described["system/digest"] = result.system.digest
    described["protocol/digest"] = result.protocol.digest
    rules = result.protocol.to_json()
    return described | {f"protocol/{name}": str(value) for name, value in rules.items()}


def digest_result(result: EvaluationResult) -> str:
    """Digest of what was measured, whenever that was."""
    content = result.summary_to_json()
    for changing in ("seconds", "created_at"):
        del content[changing]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def make_scores_table(result: EvaluationResult) -> bytes:
    """The scores as a table of MLflow."""
    columns = ("name", "mean", "low", "high", "reference", "num_texts", "num_documents", "note")
    rows = [[getattr(score, each) for each in columns] for score in result.scores]
    return _make_table(columns, rows)


def make_texts_table(result: EvaluationResult) -> bytes:
    """The texts as a table of MLflow, each with its citations."""
    columns = ("seed", "prompt_id", "prefix", "text", "reference", "citations")
    rows: list[list[Any]] = []
    for seed in result.seeds:
        for text in seed.texts:
            found = text.generation
            cited = [segment.to_json() for segment in found.segments if segment.document_id]
            citations = json.dumps(cited, ensure_ascii=False)
            about = [seed.seed, text.prompt_id, found.prefix, found.text]
            rows.append([*about, text.reference, citations])
    return _make_table(columns, rows)


def _make_table(columns: tuple[str, ...], rows: list[list[Any]]) -> bytes:
    # the form of mlflow.log_table: pandas' "split"
    content = {"columns": list(columns), "index": list(range(len(rows))), "data": rows}
    return json.dumps(content, ensure_ascii=False).encode()
