#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes expected.h5 of the golden folders anew, with transformers and PyTorch on the CPU.

Decides how the references are made: float32, eager attention, one document at a time. The tests
read the files and never need this script; it needs torch (2.15 made those that are here),
transformers (5.24) and h5py, for a GGUF file also gguf and accelerate.
"""

import argparse
import math
from pathlib import Path

import h5py
import numpy as np
import torch
from transformers import AutoModelForCausalLM

DETAILED = 1  # The document whose logits and hidden states are kept whole.
TRAINING = {
    "steps": 5,
    "learning_rate": 3e-3,
    "beta1": 0.9,
    "beta2": 0.95,
    "epsilon": 1e-8,
    "weight_decay": 0.1,
    "weight_decay_on": "parameters of two dimensions or more",
    "gradient_clip_norm": 1.0,
}


def read_documents(file: h5py.File) -> list[torch.Tensor]:
    """The documents in /tokens and /offsets."""
    tokens, offsets = file["tokens"][()].astype(np.int64), file["offsets"][()]
    return [torch.from_numpy(tokens[a:b]) for a, b in zip(offsets[:-1], offsets[1:])]


def scores(model, document: torch.Tensor):
    """Log-probability of each token (NaN for the first) and entropy after it, in float64; the
    model's raw output.
    """
    out = model(document[None], output_hidden_states=True, use_cache=False)
    logs = torch.log_softmax(out.logits[0].double(), dim=-1)
    logprob = torch.full((len(document),), math.nan, dtype=torch.float64)
    logprob[1:] = logs[:-1].gather(1, document[1:, None])[:, 0]
    return logprob, -(logs.exp() * logs).sum(-1), out


def write_scores(file: h5py.File, logprobs: list[torch.Tensor]) -> None:
    """What every reference holds: logprob, sums and counts of each document, the loss over all."""
    nll = np.array([-torch.nansum(part).item() for part in logprobs])
    count = np.array([max(len(part) - 1, 0) for part in logprobs], np.int64)
    file["logprob"] = torch.cat(logprobs).numpy()
    file["document_nll"] = nll
    file["document_scored_tokens"] = count
    file.attrs["loss"] = nll.sum() / count.sum()
    file.attrs["perplexity"] = math.exp(nll.sum() / count.sum())
    file.attrs["scored_tokens"] = np.int64(count.sum())


def write_weights(group: h5py.Group, named) -> None:
    """Tensors under their names with / for . in them."""
    for name, tensor in named:
        group[name.replace(".", "/")] = tensor.detach().numpy().copy()


def mean_loss(model, documents: list[torch.Tensor]) -> torch.Tensor:
    """The loss of all documents as one batch: mean of -logprob over all scored tokens."""
    total = torch.zeros((), dtype=model.dtype)
    for document in documents:
        if len(document) > 1:
            logits = model(document[None], use_cache=False).logits[0, :-1]
            total = total + torch.nn.functional.cross_entropy(
                logits, document[1:], reduction="sum"
            )
    return total / sum(max(len(document) - 1, 0) for document in documents)


def write_training(model, documents: list[torch.Tensor], group: h5py.Group) -> None:
    """AdamW steps on all documents as one batch: losses, gradient norms, and some gradients and
    weights.
    """
    for name, value in TRAINING.items():
        group.attrs[name] = value
    parameters = list(model.named_parameters())
    decayed = [p for _, p in parameters if p.dim() >= 2]
    others = [p for _, p in parameters if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": TRAINING["weight_decay"]},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=TRAINING["learning_rate"],
        betas=(TRAINING["beta1"], TRAINING["beta2"]),
        eps=TRAINING["epsilon"],
    )
    losses, norms = [], []
    for step in range(1, TRAINING["steps"] + 1):
        optimizer.zero_grad()
        loss = mean_loss(model, documents)
        loss.backward()
        losses.append(loss.item())
        if step == 1:
            write_weights(
                group.create_group("gradient_step_1"), ((n, p.grad) for n, p in parameters)
            )
        limit = TRAINING["gradient_clip_norm"]
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), limit).item())
        optimizer.step()
        if step in (1, TRAINING["steps"]):
            write_weights(group.create_group(f"weights_step_{step}"), parameters)
    group["loss"] = np.array(losses)
    group["gradient_norm"] = np.array(norms)


def make_folder(folder: Path, output: Path) -> None:
    """The reference of a folder with config.json, model.safetensors and tokens.h5."""
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    with h5py.File(folder / "tokens.h5") as file:
        documents = read_documents(file)
    with h5py.File(output, "w") as file, torch.no_grad():
        logprobs, entropies = [], []
        for number, document in enumerate(documents):
            logprob, entropy, out = scores(model, document)
            logprobs.append(logprob)
            entropies.append(entropy)
            if number == DETAILED:
                file[f"logits_document_{number}"] = out.logits[0].numpy()
                file[f"hidden_document_{number}"] = torch.cat(out.hidden_states).numpy()
        write_scores(file, logprobs)
        file["entropy"] = torch.cat(entropies).numpy()
        with torch.enable_grad():
            write_training(model, documents, file.create_group("train"))


def make_gguf(gguf: Path, old: Path, output: Path) -> None:
    """The reference of a GGUF file, for the tokens that the present reference holds."""
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, attn_implementation="eager"
    )
    with h5py.File(old) as file:
        kept = {name: file[name][()] for name in ("tokens", "offsets", "texts")}
        documents = read_documents(file)
    with h5py.File(output, "w") as file, torch.no_grad():
        for name, values in kept.items():
            file.create_dataset(
                name, data=values, dtype=h5py.string_dtype() if name == "texts" else None
            )
        write_scores(file, [scores(model, document)[0] for document in documents])


def main() -> None:
    """Command line: folders, and where the new files go."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+", help="golden folders")
    parser.add_argument(
        "--output", type=Path, help="write NAME.h5 here instead of expected.h5 in each folder"
    )
    parser.add_argument(
        "--gguf", type=Path, help="the GGUF file that stands for a folder without model.safetensors"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    for folder in options.folders:
        output = options.output / f"{folder.name}.h5" if options.output else folder / "expected.h5"
        part = output.with_name(output.name + ".part")
        if (folder / "model.safetensors").exists():
            make_folder(folder, part)
        elif options.gguf is not None:
            make_gguf(options.gguf, folder / "expected.h5", part)
        else:
            parser.error(f"{folder} holds no model.safetensors: give --gguf")
        part.rename(output)
        print(output)


if __name__ == "__main__":
    main()
