# SPDX-License-Identifier: Apache-2.0
"""loss_curve draws what training runs stored, from results files and from checkpoints.

Decides what must be in the picture; how it looks to the eye is judged by eyes.
"""

import re
import xml.etree.ElementTree as xml

import h5py
import numpy as np
import pytest
from conftest import ROOT  # noqa: F401 - puts tools/ on the path
from foregather_tools.loss_picture import running_mean
from training_files import history, write_checkpoint, write_training

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def svg(tool, tmp_path):
    """svg(paths..., words...) gives what was said, and the picture's curves and texts."""

    def draw(*words):
        said = tool("loss_curve", *words, "--svg", tmp_path / "p.svg", "--replace")
        assert said.status == 0, said.err
        root = xml.parse(tmp_path / "p.svg").getroot()
        curves = {
            group.get("id"): [path.get("d") for path in group.iter(f"{SVG}path") if path.get("d")]
            for group in root.iter(f"{SVG}g")
            if " of " in (group.get("id") or "")
        }
        texts = ["".join(text.itertext()).strip() for text in root.iter(f"{SVG}text")]
        return said.out, curves, texts

    return draw


def points(curve: list[str]) -> list[tuple[float, float]]:
    """The points of a line, over its gaps."""
    longest = max(curve, key=len)
    return [tuple(map(float, p)) for p in re.findall(r"[ML] (-?[\d.]+) (-?[\d.]+)", longest)]


def test_curve_has_every_step_at_its_place(svg, tmp_path):
    path = write_training(tmp_path / "r.h5", steps=80)
    _, curves, texts = svg(path)
    loss = points(curves["loss of r.h5"])
    assert len(loss) == 80
    x, y = np.array(loss).T
    stored = history(steps=80)["loss"]
    # Places are linear in step and loss; y grows downwards.
    assert np.allclose(np.diff(x), np.diff(x)[0], atol=1e-3)
    assert np.allclose((y - y[0]) / (y[-1] - y[0]), (stored - stored[0]) / (stored[-1] - stored[0]))
    assert y[-1] > y[0]
    assert {"loss, nat", "gradient norm", "learning rate", "step", "a small run"} <= set(texts)
    # The norm of step 3 is infinite: a gap, and a cross where the loss is.
    assert len(points(curves["norm of r.h5"])) == 79
    assert "not applied of r.h5" in curves and "r.h5, not applied (1)" in texts
    assert "evaluation of r.h5" in curves


def test_rows_that_were_not_run_are_not_drawn(svg, tmp_path):
    path = write_training(tmp_path / "r.h5.part", rows=200, complete=0, steps=80)
    out, curves, _ = svg(path)
    assert len(points(curves["loss of r.h5.part"])) == 80
    assert "steps 1 to 80" in out and "not complete" in out


def test_checkpoint_is_drawn_as_results_are(svg, tmp_path):
    results = write_training(tmp_path / "r.h5")
    checkpoint = write_checkpoint(tmp_path / "step-00000006.h5")
    said, curves, _ = svg(results, checkpoint, "--names", "a, b")
    assert {"loss of a", "loss of b", "norm of b", "rate of b", "evaluation of b"} <= set(curves)
    assert points(curves["loss of a"]) == points(curves["loss of b"])
    first, second = said.splitlines()
    assert first == (
        "a: steps 1 to 6, loss 5.0000 to 2.0412 nat, lowest 2.0412, evaluation 3.0000 at step 6, "
        "1 not applied"
    )
    assert second == first.replace("a:", "b:")


def test_mean_is_drawn_over_the_loss_as_it_was(svg, tmp_path):
    _, curves, texts = svg(write_training(tmp_path / "r.h5"), "--mean", 4)
    assert {"loss of r.h5", "mean loss of r.h5"} <= set(curves)
    assert "r.h5, mean of 4 steps" in texts


def test_running_mean_leaves_out_what_is_not_finite():
    values = np.array([1.0, 2.0, np.nan, 4.0, np.inf, 6.0])
    expected = [1.0, 1.5, 2.0, 4.0, 4.0, 6.0]
    np.testing.assert_array_equal(running_mean(values, 2), expected)
    np.testing.assert_array_equal(running_mean(np.array([np.nan]), 3), [np.nan])


def test_picture_is_pixels_too_and_the_same_every_time(tool, tmp_path):
    path = write_training(tmp_path / "r.h5")
    bytes_of = []
    for name in ("1", "2"):
        outputs = "--png", tmp_path / f"{name}.png", "--svg", tmp_path / f"{name}.svg"
        assert tool("loss_curve", path, *outputs, "--log-loss").status == 0
        bytes_of.append([(tmp_path / f"{name}.{kind}").read_bytes() for kind in ("png", "svg")])
    assert bytes_of[0] == bytes_of[1]
    assert bytes_of[0][0].startswith(b"\x89PNG") and len(bytes_of[0][0]) > 10_000


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda f: f.attrs.__setitem__("format", b"other"), "its format is 'other'"),
        (lambda f: f.__delitem__("train"), "has no /train/step: it is not of a training run"),
        (lambda f: f.__delitem__("train/loss"), "has no /train/loss"),
        (lambda f: f["train/step"].__setitem__(slice(None), -1), "no step that was run"),
    ],
)
def test_what_is_no_training_run_is_refused(tool, tmp_path, change, said):
    path = write_training(tmp_path / "r.h5")
    with h5py.File(path, "r+") as file:
        change(file)
    told = tool("loss_curve", path, "--png", tmp_path / "p.png")
    assert told.status == 2 and said in told.err
    assert not (tmp_path / "p.png").exists()


def test_wrong_names_and_outputs_are_refused(tool, tmp_path):
    path = write_training(tmp_path / "r.h5")
    assert tool("loss_curve", path, "--png", path, "--replace").status == 2
    assert tool("loss_curve", tmp_path / "none.h5", "--png", tmp_path / "p.png").status == 2
    told = tool("loss_curve", path, "--png", tmp_path / "p.png", "--names", "a,b")
    assert told.status == 2 and "--names has 2 names for 1 files" in told.err
    same = tmp_path / "p.png"
    assert tool("loss_curve", path, "--png", same, "--svg", same).status == 2
