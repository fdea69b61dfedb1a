#!/usr/bin/env bash
# Make the virtual environment and install the pinned packages: scripts/install.sh VENV
set -euo pipefail

venv=$1
python=""
for candidate in python3.11 python3.12 python3.13 python3; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [[ -z $python ]]; then
    echo "install: Python 3.11 or newer is needed; found: $(python3 --version 2>&1 || echo none)" >&2
    exit 1
fi

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    echo "install: making $venv with $("$python" --version)" >&2
    "$python" -m venv --clear "$venv" || {
        echo "install: $python cannot make a virtual environment; next: install its venv module" >&2
        exit 1
    }
fi
echo "install: installing the packages of constraints.txt into $venv (2 GB, some minutes the first time)" >&2
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    --constraint constraints.txt --editable '.[dev]'
