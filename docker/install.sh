#!/bin/sh
# Build the wheel of SOURCE, install it with its demo extra into a new virtualenv INTO, and see that it answers.
# Usage: sh docker/install.sh SOURCE INTO [PYTHON]
set -eu
source=$1 into=$2 python=${3:-python3}
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
cp -R "$source" "$wheels/source"
"$python" -m venv "$into"
"$into/bin/pip" wheel --quiet --no-deps --wheel-dir "$wheels" "$wheels/source"
"$into/bin/pip" install --quiet --constraint "$source/constraints.txt" "$(ls "$wheels"/sorites-*.whl)[demo]"
cd "$wheels"
"$into/bin/sorites" --version
"$into/bin/sorites" doctor
