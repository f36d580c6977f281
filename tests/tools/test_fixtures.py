# SPDX-License-Identifier: Apache-2.0
"""The fixtures are what they claim to be, and the numpy reference agrees with transformers.

Decides that the yardsticks of all other tests are straight: every number here was worked out apart
from the code.
"""

import math
import subprocess
import sys

import fixtures
import h5py
import numpy as np
import pytest
import reference
from conftest import GOLDEN, GOLDEN_MODELS, ROOT

LN2 = math.log(2)


def logprob(weights, document) -> np.ndarray:
    """Log-probabilities of all tokens but the first."""
    config, arrays = reference.read_weights(weights)
    return reference.forward(config, arrays, np.array(document)).logprob[1:]


@pytest.mark.parametrize(
    "document, costs",
    [(fixtures.A, [1, 1, 1]), (fixtures.B, [3]), (fixtures.W, [1, 1, 1, 3, 1, 1, 1, 3, 1])],
)
def test_bigram_costs_whole_powers_of_two(tmp_path, document, costs):
    found = logprob(fixtures.bigram(tmp_path / "w.h5"), document)
    np.testing.assert_allclose(found, -LN2 * np.array(costs), atol=1e-6)


def test_bigram_head_holds_three_numbers_only(tmp_path):
    _, arrays = reference.read_weights(fixtures.bigram(tmp_path / "w.h5"))
    found = sorted(set(arrays["lm_head.weight"].ravel().round(8)))
    assert found == [-1.03972077, -0.69314718, -0.34657359]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("vocab", [4, 97])
def test_uniform_costs_the_logarithm_of_the_vocabulary(tmp_path, vocab, dtype):
    found = logprob(fixtures.uniform(tmp_path / "w.h5", vocab, dtype), [0, 1, 3, 2])
    np.testing.assert_allclose(found, -math.log(vocab), atol=1e-12)


@pytest.mark.parametrize("eps, expected", [(1e-5, -1.2550639), (1e-6, -1.0329637), (0.0, -LN2)])
def test_epsilon_decides_the_score(tmp_path, eps, expected):
    assert logprob(fixtures.epsilon(tmp_path / "w.h5", eps), [0, 1])[0] == pytest.approx(
        expected, abs=1e-6
    )


@pytest.mark.parametrize("case, expected", [("i", -0.4064344), ("ii", -1.3862944)])
def test_head_dim_and_shared_heads(tmp_path, case, expected):
    weights = fixtures.head_dim(tmp_path / "w.h5", case)
    config, arrays = reference.read_weights(weights)
    assert arrays["model.layers.0.self_attn.q_proj.weight"].shape == (8, 4)
    assert logprob(weights, [0, 2])[0] == pytest.approx(expected, abs=1e-6)


def test_d1_llama3_frequencies():
    block = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    config = {"head_dim": 8, "rope_theta": 10000.0, "rope_scaling": block}
    expected = [1, 0.013042256, 0.00125, 0.000125]
    np.testing.assert_allclose(reference.inverse_frequencies(config), expected, rtol=1e-7)


@pytest.mark.parametrize("model", GOLDEN_MODELS)
def test_reference_agrees_with_transformers(tool, tmp_path, model):
    out = tmp_path / "w.h5"
    assert tool("import_model", GOLDEN / model, out).status == 0
    found = reference.score(out, GOLDEN / model / "tokens.h5")
    with h5py.File(GOLDEN / model / "expected.h5") as file:
        expected = {name: file[name][()] for name in ("logprob", "entropy", "document_nll")}
        logits, hidden = file["logits_document_1"][()], file["hidden_document_1"][()]
    together = np.concatenate([part.logprob for part in found])
    assert (np.isnan(together) == np.isnan(expected["logprob"])).all()
    assert np.nanmax(np.abs(together - expected["logprob"])) <= 5e-5
    assert (
        np.abs(np.concatenate([part.entropy for part in found]) - expected["entropy"]).max() <= 5e-5
    )
    sums = [-np.nansum(part.logprob) for part in found]
    np.testing.assert_allclose(sums, expected["document_nll"], atol=1e-4)
    np.testing.assert_allclose(found[1].logits, logits, atol=5e-5)
    np.testing.assert_allclose(found[1].hidden, hidden[-1], atol=5e-5)


@pytest.mark.parametrize("name", ["attention_bias", "mlp_bias"])
def test_reference_reads_every_bias(tmp_path, name):
    weights = fixtures.random_llama(tmp_path / "w.h5", num_hidden_layers=1, **{name: True})
    config, arrays = reference.read_weights(weights)
    document = np.array([0, 1, 3, 2])
    whole = reference.forward(config, arrays, document).logprob[1:]
    biases = [key for key in arrays if key.endswith(".bias")]
    assert len(biases) == {"attention_bias": 4, "mlp_bias": 3}[name]
    for key in biases:
        without = {k: v for k, v in arrays.items() if k != key}
        change = np.abs(reference.forward(config, without, document).logprob[1:] - whole).max()
        # A bias of the keys shifts all scores of a query alike when there is no rotation between
        # them.
        assert change > 1e-4, key


def test_t24_token_files_hold_what_they_are_named_for(tmp_path):
    cases = fixtures.token_cases(tmp_path)
    found = {}
    for name, path in cases.items():
        with h5py.File(path) as file:
            found[name] = (
                file["tokens"].dtype.name,
                file["tokens"][()].tolist(),
                file["offsets"][()].tolist(),
            )
    assert found == {
        "good-int64": ("int64", [5, 70000, 5], [0, 3]),
        "good-uint32": ("uint32", [5, 70000, 5], [0, 3]),
        "good-int32": ("int32", [5, 70000, 5], [0, 3]),
        "good-uint16": ("uint16", [5, 65535, 5], [0, 3]),
        "bad-negative-int16": ("int16", [5, -1, 5], [0, 3]),
        "bad-float32": ("float32", [5, 70000, 5], [0, 3]),
        "bad-id": ("int64", [5, 6, 5, 70001], [0, 2, 4]),
        "bad-offsets-order": ("uint32", [5, 70000, 5], [0, 3, 2]),
        "bad-offsets-end": ("uint32", [5, 70000, 5], [0, 4]),
        "bad-two-dimensions": ("uint32", [[5, 70000, 5]], [0, 3]),
    }


def test_command_line_writes_what_the_functions_write(tmp_path):
    script = ROOT / "tests" / "support" / "fixtures.py"

    def write(*words):
        subprocess.run([sys.executable, script, words[0], tmp_path / "out", *words[1:]], check=True)

    write("bigram", "--set", "num_hidden_layers=3", "--dtype", "bfloat16", "--output", "deep.h5")
    config, arrays = reference.read_weights(tmp_path / "out" / "deep.h5")
    assert config["num_hidden_layers"] == 3 and arrays["model.norm.weight"].shape == (4,)
    write("documents", "--documents", "[[0, 1], [], [2]]", "--dtype", "int16")
    with h5py.File(tmp_path / "out" / "documents.h5") as file:
        assert file["tokens"].dtype == np.int16 and file["offsets"][:].tolist() == [0, 2, 2, 3]
    write("bigram-documents")
    (first, second) = reference.read_documents(tmp_path / "out" / "ab.h5")
    assert first.tolist() == fixtures.A and second.tolist() == fixtures.B
