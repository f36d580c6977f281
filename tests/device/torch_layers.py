#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The layers of the part `forward` in PyTorch, eager and compiled: same shapes, bf16, its own
attention, documents of equal length as a batch.

Decides how PyTorch is used (its published functions, no tuning); shapes are those of bench.cpp.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as f

# width, ffn, heads, kv heads, head dim, norms of q and k, theta, epsilon
MODELS = {
    "Qwen3-32B": (5120, 25600, 64, 8, 128, True, 1e6, 1e-6),
    "Llama-3.1-8B": (4096, 14336, 32, 8, 128, False, 5e5, 1e-5),
}
TINY = (64, 128, 4, 2, 32)


class Norm(torch.nn.Module):
    def __init__(self, width: int, epsilon: float, **kind: Any):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width, **kind))
        self.epsilon = epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return f.rms_norm(x, self.weight.shape, self.weight, self.epsilon)


class Layer(torch.nn.Module):
    """A decoder layer of the Llama and Qwen3 families."""

    def __init__(self, shape: tuple, epsilon: float, **kind: Any):
        super().__init__()
        width, ffn, self.heads, self.kv_heads, self.head_dim, self.qk_norm = shape

        def linear(inputs: int, outputs: int) -> torch.nn.Linear:
            made = torch.nn.Linear(inputs, outputs, bias=False, **kind)
            torch.nn.init.normal_(made.weight, std=0.02)
            return made

        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        self.q, self.k, self.v = (linear(width, n) for n in (query, key, key))
        self.o = linear(query, width)
        self.gate, self.up, self.down = linear(width, ffn), linear(width, ffn), linear(ffn, width)
        self.before, self.after = (Norm(width, epsilon, **kind) for _ in range(2))
        if self.qk_norm:
            self.q_norm, self.k_norm = (Norm(self.head_dim, epsilon, **kind) for _ in range(2))

    def turned(self, x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return x * cosines + torch.cat((-b, a), -1) * sines

    def forward(self, x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        normed = self.before(x)

        def heads(projected: torch.Tensor, n: int) -> torch.Tensor:
            return projected.view(batch, length, n, self.head_dim)

        q, k, v = (
            heads(project(normed), n)
            for project, n in (
                (self.q, self.heads),
                (self.k, self.kv_heads),
                (self.v, self.kv_heads),
            )
        )
        if self.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        q, k = self.turned(q, cosines, sines), self.turned(k, cosines, sines)
        mixed = f.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(batch, length, -1))
        normed = self.after(x)
        return x + self.down(f.silu(self.gate(normed)) * self.up(normed))


class Layers(torch.nn.Module):
    def __init__(self, layers: list[Layer]):
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, cosines, sines)
        return x


def rope(
    length: int, head_dim: int, theta: float, **kind: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain RoPE: its values do not change the time."""
    rates = theta ** -(torch.arange(0, head_dim, 2) / head_dim)
    angles = torch.arange(length)[:, None] * torch.cat((rates, rates))
    return angles.cos().to(**kind), angles.sin().to(**kind)


def seconds(call: Any, device: str, least: int) -> tuple[float, float]:
    """Of the first call, and the median of `least` calls after it."""

    def timed() -> float:
        begin = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    first = timed()
    timed()
    return first, statistics.median(timed() for _ in range(least))


def measure(row: dict[str, Any], how: str, options: argparse.Namespace) -> dict[str, Any]:
    """A row of torch for one of forward: its layers, tokens and documents."""
    *shape, theta, epsilon = MODELS[row["model"]]
    if options.tiny:
        shape[:5] = TINY
    kind = {"device": options.device, "dtype": torch.bfloat16}
    width, head_dim, document = shape[0], shape[4], row["document_tokens"]
    model = Layers([Layer(tuple(shape), epsilon, **kind) for _ in range(row["layers"])])
    x = torch.randn(row["tokens"] // document, document, width, **kind)
    cosines, sines = rope(document, head_dim, theta, **kind)
    run = torch.compile(model) if how == "compile" else model
    with torch.inference_mode():
        first, median = seconds(lambda: run(x, cosines, sines), options.device, 5)
    kept = {name: row[name] for name in ("model", "layers", "tokens", "document_tokens")}
    return kept | {
        "torch": torch.__version__,
        "how": how,
        "first_call_s": first,
        "layers_s": median,
    }


def main() -> None:
    """Rows for the models, layers and documents of the part forward's rows in the same file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, required=True, help="file with rows of forward, to add to"
    )
    parser.add_argument("--budget", type=float, required=True, help="seconds")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--emulated", action="store_true", help="mark rows as of no GPU")
    parser.add_argument("--eager-only", action="store_true")
    parser.add_argument("--device", default="cuda", help="cpu only to try this script")
    options = parser.parse_args()
    end = time.monotonic() + options.budget

    def write(**line: Any) -> None:
        with options.out.open("a") as file:
            print(json.dumps(line | {"part": "torch", "emulated": options.emulated}), file=file)

    lines = map(json.loads, options.out.read_text().splitlines())
    wanted = [line["row"] for line in lines if line.get("table") == "forward"]
    if not wanted:
        write(skipped="there are no rows of forward to compare with")
        return
    for how in ("eager",) if options.eager_only else ("eager", "compile"):
        for row in wanted:
            if time.monotonic() > end:
                write(cut=f"the time of this part was over before {row['model']}, {how}")
                return
            write(table="torch", row=measure(row, how, options))


if __name__ == "__main__":
    sys.exit(main())
