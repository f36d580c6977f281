#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer: PyTorch FSDP2 over gloo on CPU, scoring or training the same model on the same tokens.

  torchrun --nproc-per-node 2 fsdp2.py HF_DIR TOKENS.h5 [--job score|train] [--tokens 1024] [--length 256]
           [--prefetch 0|1] [--dtype fp32|bf16] [--steps 5] [--no-shard]
HF_DIR: config.json + model.safetensors.  TOKENS.h5: /tokens; they are cut into rows of --length tokens, --tokens of them for
each rank and step.  Set OMP_NUM_THREADS (threads per rank).  Prints one JSON line: seconds and tokens/s (median of the
steps after one warm-up), loss, peak memory of rank 0, seconds from process start to the end of the first step.
--no-shard runs plain transformers on one process (start it with python).
"""
import argparse, json, os, resource, time
T_START = time.time()
import h5py, numpy as np, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoModelForCausalLM

p = argparse.ArgumentParser()
p.add_argument("hf"); p.add_argument("tokens_file")
p.add_argument("--job", default="score"); p.add_argument("--tokens", type=int, default=1024)
p.add_argument("--length", type=int, default=256); p.add_argument("--prefetch", type=int, default=1)
p.add_argument("--dtype", default="fp32"); p.add_argument("--steps", type=int, default=5)
p.add_argument("--no-shard", action="store_true")
a = p.parse_args()
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
rank, ranks = 0, 1
if not a.no_shard:
    dist.init_process_group("gloo"); rank, ranks = dist.get_rank(), dist.get_world_size()
dtype = torch.bfloat16 if (a.no_shard and a.dtype == "bf16") else torch.float32
model = AutoModelForCausalLM.from_pretrained(a.hf, dtype=dtype, attn_implementation="sdpa")
if not a.no_shard:
    mesh = init_device_mesh("cpu", (ranks,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16) if a.dtype == "bf16" else MixedPrecisionPolicy()
    layers = list(model.model.layers)
    for layer in layers: fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    if a.prefetch:
        for x, y in zip(layers, layers[1:]): x.set_modules_to_forward_prefetch([y])
ids = torch.tensor(h5py.File(a.tokens_file)["tokens"][:].astype(np.int64))
rows = a.tokens // a.length
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5) if a.job == "train" else None

def step(i):
    start = [(((i * ranks + rank) * rows + r) * a.length) % (len(ids) - a.length) for r in range(rows)]
    x = torch.stack([ids[s:s + a.length] for s in start])
    with torch.set_grad_enabled(a.job == "train"):
        logits = model(input_ids=x, use_cache=False).logits[:, :-1].float()
        nll = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), x[:, 1:].reshape(-1))
        if optimizer:
            nll.backward(); torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step(); optimizer.zero_grad()
    return float(nll.detach())

loss = step(0); first = time.time() - T_START
times = []
for i in range(1, a.steps + 1):
    if ranks > 1: dist.barrier()
    t = time.time(); loss = step(i)
    if ranks > 1: dist.barrier()
    times.append(time.time() - t)
median = sorted(times)[len(times) // 2]
if rank == 0:
    print(json.dumps(dict(job=a.job, sharded=not a.no_shard, ranks=ranks, prefetch=a.prefetch, dtype=a.dtype, tokens=a.tokens,
                          seconds=round(median, 4), fastest=round(min(times), 4), tokens_per_second=round(a.tokens * ranks / median, 1), loss=round(loss, 4),
                          peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, first_step_s=round(first, 1))))
if ranks > 1: dist.destroy_process_group()
