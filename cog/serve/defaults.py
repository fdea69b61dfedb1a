"""``/api/settings``: a corpus goes in, every setting with its default and its meaning comes out."""

from dataclasses import asdict
from typing import Any

from starlette.requests import Request

from cog.corpus.documents import load_prompts
from cog.errors import CorpusError
from cog.index.versions.unions import split_union
from cog.records import Decoding
from cog.serve.bodies import GenerateBody, choose_decoding
from cog.serve.engine import Engine
from cog.serve.openapi import make_schema
from cog.serve.systems import SERVED

# in order of display; the others are advanced
NUM_EXAMPLES = 3
FIRST = ("max_new_tokens", "method", "top_p", "temperature", "seed", "phrase_bias")


def tell_settings(engine: Engine, request: Request) -> dict[str, Any]:
    """Every setting with its default and its meaning, and limits of a request."""
    version = engine.indexes.resolve(request.query_params.get("corpus") or None)
    decoding, tuned = choose_decoding(
        engine.paths,
        engine.params,
        GenerateBody(()),
        version,
        model=engine.model.fingerprint,
        names={},
    )
    values, schemas = asdict(decoding), make_schema(Decoding)["properties"]
    names = [*FIRST, *(name for name in values if name not in FIRST)]
    limits = engine.settings
    encoder = engine.model.prefix_encoder
    max_tokens = min(limits.max_tokens, encoder.max_positions // 2)
    settings = [_describe_setting(name, values[name], schemas[name]) for name in names]
    settings[0]["maximum"] = max_tokens
    return {
        "corpus": version.corpus,
        "settings": settings,
        "tuned": tuned,
        "systems": [{"name": name, "meaning": meaning} for name, meaning in SERVED.items()],
        "limits": {
            "max_prompts": limits.max_texts,
            "max_texts": limits.max_texts,
            "max_tokens": max_tokens,
            "max_prefix_characters": limits.max_prefix_characters,
            "max_body_bytes": limits.max_body_bytes,
        },
        "examples": _list_examples(engine, version.corpus),
        "model": engine.model.fingerprint,
        "precision": encoder.precision,
    }


def _list_examples(engine: Engine, corpus_id: str) -> list[str]:
    # what may be begun with: held-out prompts, each of another document
    path = engine.paths.corpus(split_union(corpus_id)[0]).prompts
    try:
        prompts = load_prompts(path, at_most=8 * NUM_EXAMPLES)
    except CorpusError:  # deleted, or of an earlier version
        return []
    first = {each.document_id: each.prefix for each in reversed(prompts)}
    return list(reversed(first.values()))[:NUM_EXAMPLES]


def _describe_setting(name: str, value: object, schema: dict[str, Any]) -> dict[str, Any]:
    choices = schema.get("enum")
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    return {
        "name": name,
        "type": "choice" if choices else schema["type"],
        "default": value,
        "choices": choices,
        "minimum": low,
        "maximum": schema.get("maximum"),
        "is_minimum_open": "exclusiveMinimum" in schema,
        "meaning": schema.get("description", ""),
        "is_advanced": name not in FIRST,
    }
