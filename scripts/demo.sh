#!/usr/bin/env bash
# The main job, end to end: fetch, prepare and index two corpora, then write with each of them.
set -euo pipefail
cd "$(dirname "$0")/.."

corpora=(wiki-mini eu-law-mini)
wiki_prefix="The Baltic Sea is"
law_prefix="The provider of a high-risk AI system shall"

heading() { printf '\n== %s\n\n' "$1"; }

# DVC wants a git checkout; in a plain folder it is told to do without, for this folder only.
if ! git rev-parse --is-inside-work-tree >/dev/null 2>&1 && [[ ! -e .dvc/config.local ]]; then
    printf '[core]\n    no_scm = true\n' >.dvc/config.local
fi

heading "1  Build: ${corpora[*]} (fetch, prepare, index; a second run does nothing)"
dvc repro "${corpora[@]/#/index@}"

heading "2  What the registry holds"
cog corpus list

heading "3  Switch to wiki-mini and write"
cog switch --corpus wiki-mini
cog generate --prefix "$wiki_prefix" --max-new-tokens 64

heading "4  Switch to eu-law-mini: the same model, another corpus"
cog switch --corpus eu-law-mini
cog generate --prefix "$law_prefix" --max-new-tokens 64

heading "5  What is active, and back to what was"
cog status
cog rollback
