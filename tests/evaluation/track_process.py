"""Logs one evaluation to MLflow: project, number, and the second at which to begin."""

import sys
import time
from pathlib import Path

from cog.evaluation.tracking import Tracker
from cog.paths import ProjectPaths
from tests.evaluation.making import rep, result

if __name__ == "__main__":
    time.sleep(max(0.0, float(sys.argv[3]) - time.time()))
    scores = [rep([float(sys.argv[2])] * 2)]
    Tracker(ProjectPaths(Path(sys.argv[1])), "together").log_result(result("village", scores))
