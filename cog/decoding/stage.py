"""Stage ``generate``: a corpus's held-out prompts go in, a file of cited generations comes out."""

import json

from cog.atomic import replacing, write_text_atomically
from cog.corpus.documents import NO_PROMPTS, load_prompts
from cog.decoding.request import Request
from cog.decoding.session import open_generator
from cog.params import Params
from cog.paths import ProjectPaths
from cog.progress import Progress


def generate_corpus(paths: ProjectPaths, corpus_id: str, params: Params, progress: Progress) -> int:
    """Continue the first held-out prompts of a corpus and write them as JSON lines.

    Every line is a generation with the prompt's id and its reference. Gives their number; of a
    corpus that holds out no prompt it is 0, and the file is empty.
    """
    settings = params.generate
    prompts = load_prompts(paths.corpus(corpus_id).prompts)[: settings.num_prompts]
    target = paths.corpus(corpus_id).generations
    if not prompts:
        progress.say(f"{corpus_id} {NO_PROMPTS}: no text is written")
        write_text_atomically(target, "")
        return 0
    decoding = settings.decoding
    with (
        open_generator(paths, params, corpus_id=corpus_id, device="auto") as generator,
        replacing(target) as unfinished,
        unfinished.open("w", encoding="utf-8") as file,
    ):
        requests = [Request(prompt.prefix, decoding) for prompt in prompts]
        written = generator.generate_each(requests, batch_size=settings.batch_size)
        for prompt, generation in zip(prompts, written, strict=True):
            line = {
                "prompt_id": prompt.prompt_id,
                **generation.to_json(),
                "reference": prompt.reference,
            }
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            progress.advance(1)
    return len(prompts)
