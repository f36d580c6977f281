#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a deck on this machine: jobs/local.sh [DECK [RANKS [--section.key=value ...]]]
# It decides how ranks are started; what they do is the deck's. A deck is looked for here first, then in the
# project's folder; paths in it are seen from there.
set -eu
deck=${1:-inputs/score-smollm2.deck}
[ ! -e "$deck" ] || deck=$(realpath -- "$deck")
cd "$(dirname "$0")/.."

ranks=${2:-2}
shift $(($# < 2 ? $# : 2))

# Open MPI does not start as root unless told so, twice; for other users this changes nothing.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# --bind-to none: a rank has threads that gather beside those that compute, and one core is too few for both.
# --oversubscribe: more ranks than cores are slow, and right.
exec mpirun --oversubscribe --bind-to none -n "$ranks" ./foregather "$deck" "$@"
