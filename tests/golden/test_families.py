# SPDX-License-Identifier: Apache-2.0
"""Every family, RoPE type and window against transformers, for what no golden folder covers.

Decides nearness, and that windows are counted as there; models and documents are those of
family_cases.py, the numbers lie in data/families.h5.
"""

import h5py
import numpy as np
import pytest
import reference
from family_cases import CASES, EXPECTED, arrays_of, config_of, documents_of, write_folder
from fixtures import write_tokens
from foregather_tools import import_model
from foregather_tools.config_law import judge

NEAR = 5e-5  # |difference| of a log-probability in float32, nat.
WINDOWS = (2, 3, 4, 5, None)


@pytest.fixture
def scores(run, tmp_path):
    """scores(name): what the program gives for a case imported from its folder, and the reference."""

    def of(name: str, ranks: int = 2) -> tuple[np.ndarray, np.ndarray]:
        weights = tmp_path / f"{name}.h5"
        words = [str(write_folder(name, tmp_path / name)), str(weights)]
        assert import_model.main(words) == 0
        tokens = write_tokens(tmp_path / "tokens.h5", documents_of(name))
        deck = {"model.weights": weights, "data.tokens": tokens, "batch.tokens": 64}
        found = run(deck | {"fsdp.piece_bytes": "1 KiB"}, ranks).read("/score/logprob")
        with h5py.File(EXPECTED) as file:
            wanted = file[name][()]
        assert np.array_equal(np.isnan(found), np.isnan(wanted))
        return found, wanted

    return of


@pytest.mark.parametrize("name", [name for name in CASES if "-t10-" not in name])
def test_family_scores_as_in_transformers(name, scores):
    found, wanted = scores(name)
    assert np.nanmax(np.abs(found - wanted)) <= NEAR
    last = np.cumsum([len(ids) for ids in documents_of(name)])[[0, 1, 3]] - 1
    assert np.abs(found[last] - wanted[last]).max() <= NEAR  # Where wrong positions show most.


@pytest.mark.parametrize("name", CASES)
def test_plain_forward_pass_agrees_with_transformers(name):
    config, _ = judge(config_of(name))
    parts = [
        reference.forward(config, arrays_of(name), np.array(ids)) for ids in documents_of(name)
    ]
    with h5py.File(EXPECTED) as file:
        wanted = file[name][()]
    found = np.concatenate([part.logprob for part in parts])
    assert np.nanmax(np.abs(found - wanted)) <= NEAR


def test_d7_t10_a_window_counts_the_token_itself(scores):
    found = {}
    for window in WINDOWS:
        found[window], wanted = scores(f"mistral-t10-window-{window}", ranks=1)
        assert np.nanmax(np.abs(found[window] - wanted)) <= 1e-5, window
    # The last token is predicted from four: a window of four or more is none, bit for bit.
    for window in (4, 5):
        assert found[window].tobytes() == found[None].tobytes()
    for window in (2, 3):
        seen = slice(1, window + 1)  # Predicted from no more tokens than the window.
        assert found[window][seen].tobytes() == found[None][seen].tobytes()
        assert np.abs(found[window][-1] - found[None][-1]) > 100 * 1e-5
