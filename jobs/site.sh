#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What differs from site to site, in one place: copy it, fill in what your machine needs, keep the copy.
#   . jobs/site.sh && sbatch jobs/score.sbatch score.deck     the first part is read by sbatch
# The scripts read it again inside the job, for the second part; SITE=FILE names another one.
# It decides nothing for foregather itself: that is the deck's.

# ---- read by sbatch (man sbatch, "INPUT ENVIRONMENT VARIABLES"); the command line wins -----------
# export SBATCH_PARTITION=gpu
# export SBATCH_ACCOUNT=project
# GPUs of a node, all of them seen by each of its ranks: a rank takes the one of its local rank. Not
# --gpus-per-task: ranks that see one GPU each may lose the direct way to each other's memory.
# export SBATCH_GPUS_PER_NODE=8

# ---- read in the job ------------------------------------------------------------------------------
# What foregather was built with:
# module load cuda nccl openmpi hdf5

# Every NCCL_* that is set is told in the results. NCCL's own choices are good ones; what each of these overrides:
# export NCCL_DEBUG=INFO              nothing: NCCL tells what it chose (rings, trees, network)
# export NCCL_SOCKET_IFNAME=ib0       the interface by which ranks find each other first
# export NCCL_IB_HCA=mlx5             the network adapters that carry the gathers
# export NCCL_ALGO=Ring               the algorithm that NCCL chooses by size and topology
# export NCCL_MAX_CTAS=8              the thread blocks of a gather: with fewer, compute has more of the GPU
# export NCCL_P2P_DISABLE=1           GPUs' direct access to each other; gathers go through host memory

# How srun starts ranks that find each other: Open MPI's way under Slurm. srun --mpi=list shows what there is;
# without it, LAUNCHER=mpirun starts them from the first node.
# export LAUNCHER=mpirun
