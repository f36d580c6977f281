#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the batch scripts share; they read it, it does nothing by itself.
# It decides how ranks are started inside a job; what they do is the deck's.

# The project's folder is the one that the job was submitted from: relative paths of a deck are seen from there.
# shellcheck source=jobs/site.sh
. "${SITE:-jobs/site.sh}"

# check RANKS RANKS_PER_NODE DECK [OVERRIDE ...]: the resolved deck, memory and schedule. A refusal costs seconds
# here, and no allocation's time is lost on a wrong key.
check() {
    local ranks=$1 per_node=$2
    shift 2
    # When the job ends, so that a run stops in time to save. Older Slurms do not set it.
    local ends=
    if [ -z "${SLURM_JOB_END_TIME-}" ]; then
        ends=$(squeue -h -j "$SLURM_JOB_ID" -o %e || true)
        # "N/A": no limit. date takes an empty text for today.
        if [ -n "$ends" ] && SLURM_JOB_END_TIME=$(date -d "$ends" +%s); then
            export SLURM_JOB_END_TIME
        else
            unset SLURM_JOB_END_TIME
            echo "the end of the job is not known (squeue: '$ends'): set job.max_time to stop in time for it"
        fi
    fi
    echo "job $SLURM_JOB_ID: $ranks ranks, $per_node a node, ${SLURM_GPUS_PER_NODE:-0} GPUs a node," \
        "${SLURM_CPUS_PER_TASK:-1} cores a rank; $*"
    echo "environment: $(env | grep -E '^(NCCL|CUDA|CUBLAS|OMPI_MCA|UCX)_' | sort | tr '\n' ' ')"
    ./foregather --check "$1" --ranks "$ranks" --ranks-per-node "$per_node" "${@:2}"
}

# start NODES RANKS_PER_NODE DECK [OVERRIDE ...]: after check, runs it and returns its exit status.
start() {
    local nodes=$1 per_node=$2
    shift 2
    if [ "${LAUNCHER:-srun}" = mpirun ]; then
        # mpirun passes SIGUSR1 on to the ranks, but ends them at SIGTERM.
        mpirun --bind-to none -n $((nodes * per_node)) --map-by "ppr:$per_node:node" ./foregather "$@"
        return
    fi
    # --mpi=pmix: how Open MPI's ranks find each other under Slurm.
    # --kill-on-bad-exit: when one rank dies the others end too, instead of waiting for it until the time limit.
    # --cpus-per-task: Slurm hands the value to sbatch alone; without it a rank's threads share one core.
    # --cpu-bind=cores: a rank keeps to cores of its own.
    srun --mpi=pmix --nodes="$nodes" --ntasks=$((nodes * per_node)) --ntasks-per-node="$per_node" \
        --kill-on-bad-exit=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --cpu-bind=cores ./foregather "$@"
}

# again STATUS RUNS: after a run that stopped in order (status 75), puts the job back into the queue, at most RUNS
# times; it goes on where it stopped. Returns the status, or 0 when the job was put back.
again() {
    local status=$1 runs=$2
    if [ "$status" != 75 ]; then
        return "$status"
    fi
    if [ "${SLURM_RESTART_COUNT:-0}" -ge "$runs" ]; then
        echo "stopped early, and put back ${SLURM_RESTART_COUNT:-0} times by now: submit it again to go on"
        return 75
    fi
    echo "stopped early: put back into the queue"
    scontrol requeue "$SLURM_JOB_ID"
}
