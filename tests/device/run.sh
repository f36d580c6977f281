#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What can only be known on a GPU: right results, speed, overlap, NCCL's answers. Prints a table and writes an HDF5 file.
# It decides what is run, in which order and for how long; what is measured is decided by the parts it starts.
#
#   tests/device/run.sh [--tiny] [--output FILE.h5] [--parts "golden products forward torch streaming contention nccl sanitizer"]
#     --tiny     shapes of a test: every part runs to its end in seconds, and no figure means anything
#   BUILD        folder of foregather and device_bench; without it they are built first: make CUDA=1 all device_bench
#   VENV         Python packages (.venv);  PYTHON_TORCH  a Python with PyTorch for CUDA (python3);  MPIRUN  (mpirun)
# It ends within 8 minutes, without the build: a part is ended at its limit, and what it has measured is kept.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1

tiny=() output='' parts="golden products forward torch streaming contention nccl sanitizer"
while [ $# -gt 0 ]; do
    case $1 in
    --tiny) tiny=(--tiny) && shift ;;
    --output) output=${2:?--output needs a file} && shift 2 ;;
    --parts) parts=${2?--parts needs names} && shift 2 ;;
    *) sed -n '3,11s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
    esac
done
venv=${VENV:-.venv}
python=$venv/bin/python
torch_python=${PYTHON_TORCH:-python3}
mpirun=${MPIRUN:-mpirun}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

if [ -z "${BUILD-}" ]; then
    make CUDA=1 -j"$(nproc)" all device_bench || exit 1
    BUILD=build/release-cuda
fi
bench=$BUILD/device_bench
export FOREGATHER=$PWD/$BUILD/foregather
case $BUILD in /*) FOREGATHER=$BUILD/foregather ;; esac
for needed in "$bench" "$FOREGATHER" "$python"; do
    [ -x "$needed" ] || { echo "run.sh: $needed is not there: make deps; make CUDA=1 all device_bench" >&2 && exit 1; }
done
output=${output:-device-$(date +%Y%m%d-%H%M%S).h5}
rows=$output.rows
: > "$rows" || exit 1

emulated=false
deadline=$((SECONDS + 455))

# note PART KIND TEXT: a line of the table's end. Quotes and backslashes of the text become spaces.
note() {
    local text
    text=$(printf %s "$3" | tr '"\\\n\t' '    ')
    printf '{"%s": "%s", "part": "%s", "emulated": %s}\n' "$2" "$text" "$1" $emulated >> "$rows"
}

report() {
    "$python" tests/device/report.py "$rows" "$output" --attribute "date=$(date -u +%FT%TZ)" \
        --attribute "host=$(uname -n)" --attribute "revision=$(git describe --always --dirty 2> /dev/null || echo unknown)" "$@"
}

# part NAME SECONDS COMMAND...: runs it with --budget and --out; what it has written by its limit is kept.
part() {
    local name=$1 limit=$2 left=$((deadline - SECONDS)) begin=$SECONDS rc
    shift 2
    [ "$limit" -le "$left" ] || limit=$left
    if [ "$limit" -lt 5 ]; then
        note "$name" skipped "the time of the whole was over"
        return
    fi
    echo "==> $name (at most $limit s)"
    timeout -k 5 "$limit" "$@" --out "$rows" --budget $((limit * 4 / 5)) "${tiny[@]}" < /dev/null
    rc=$?
    [ -z "$(tail -c 1 "$rows")" ] || echo >> "$rows" # after a row that was cut short
    if [ $rc != 0 ] && [ $((SECONDS - begin)) -ge "$limit" ]; then
        note "$name" cut "ended at its limit of $limit s"
    elif [ $rc != 0 ]; then
        note "$name" failed "ended with status $rc"
    fi
    report
}

driver() {
    local words=(nvidia-smi --query-gpu=driver_version --format=csv,noheader --id=0) text=unknown
    command -v nvidia-smi > /dev/null && text=$("${words[@]}" | head -n 1)
    printf '{"table": "provenance", "row": {"driver": "%s"}, "part": "provenance", "emulated": %s}\n' "$text" $emulated >> "$rows"
}

golden() { part golden 60 "$python" tests/device/program.py golden "${mark[@]}"; }
products() { part products 75 "$bench" --part products; }
forward() { part forward 70 "$bench" --part forward; }
streaming() { part streaming 60 "$bench" --part streaming; }
contention() { part contention 35 "$bench" --part contention; }
torch() {
    if ! timeout 30 "$torch_python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2> /dev/null; then
        note torch skipped "$torch_python has no PyTorch that sees a GPU (PYTHON_TORCH names another)"
    else
        part torch 60 "$torch_python" tests/device/torch_layers.py "${mark[@]}"
    fi
}
nccl() {
    part nccl 30 "$bench" --part nccl
    if [ "$gpus" -ge 2 ]; then
        part nccl 40 "$mpirun" --oversubscribe --bind-to none -n "$gpus" "$bench" --part nccl
    fi
}
sanitizer() {
    local tool
    tool=$(command -v compute-sanitizer || command -v "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer")
    if [ -z "$tool" ]; then
        note sanitizer skipped "compute-sanitizer is not installed"
    elif [ $emulated = true ]; then
        note sanitizer skipped "an emulation has no device code to look at"
    else
        part sanitizer 60 "$python" tests/device/program.py sanitizer --sanitizer "$tool" "${mark[@]}"
    fi
}

mark=()
part provenance 30 "$bench" --part provenance
if grep -q '"emulated": *true' "$rows"; then
    emulated=true
    mark=(--emulated)
fi
driver
gpus=$("$python" tests/device/report.py "$rows" --value gpus)
for name in $parts; do
    case $name in
    golden | products | forward | torch | streaming | contention | nccl | sanitizer) ;;
    *) echo "run.sh: $name is no part" >&2 && exit 2 ;;
    esac
    if [ -z "$gpus" ]; then
        note "$name" skipped "no GPU can be used"
    else
        "$name"
    fi
done
report --table
rm -f "$rows"
echo
echo "$output: written after $SECONDS s"
"$python" - "$output" <<'END'
import sys

import h5py

with h5py.File(sys.argv[1]) as file:
    bad = [kind for kind in file["notes/kind"].asstr()[()] if kind == "failed"]
    for table in ("golden", "sanitizer"):
        bad += [table for passed in (file[table]["passed"][()] if table in file else []) if not passed]
sys.exit(1 if bad else 0)
END
