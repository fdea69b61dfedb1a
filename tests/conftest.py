"""Fixtures of all tests; threads are pinned before anything imports torch."""

import os

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["DVC_NO_ANALYTICS"] = "1"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
