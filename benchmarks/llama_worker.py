"""llama.cpp in an interpreter that has it, and need have nothing of cog.

``PYTHON llama_worker.py GGUF THREADS`` tells in its first line what it is, or why it cannot be,
then reads a prompt a line and answers with what it took: see ``benchmarks.llama``.
"""

import json
import os
import sys
import time
from itertools import islice


def main(path: str, threads: int) -> None:
    """Continue prompts until there are no more.

    :param path: The model, a GGUF file.
    :param threads: Number of threads.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever the library prints is no answer
    try:
        import llama_cpp
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), file=answers)
        return
    model = llama_cpp.Llama(
        path, n_ctx=2048, n_threads=threads, n_threads_batch=threads, verbose=False
    )
    features = llama_cpp.llama_print_system_info().decode()
    print(json.dumps({"version": llama_cpp.__version__, "features": features}), file=answers)
    for line in sys.stdin:
        prompt = json.loads(line)
        model.reset()  # else what it knows of the prompt before is not computed again
        model.set_seed(prompt["seed"])
        began = time.perf_counter()
        tokens = model.generate(
            prompt["ids"],
            top_k=0,
            top_p=prompt["top_p"],
            min_p=0.0,
            temp=prompt["temperature"],  # 0 is greedy
            repeat_penalty=1.0,
        )
        count = sum(1 for _ in islice(tokens, prompt["max_new_tokens"]))  # no end of text ends it
        seconds = time.perf_counter() - began
        print(json.dumps({"seconds": seconds, "tokens": count}), file=answers)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
