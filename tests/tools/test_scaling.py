# SPDX-License-Identifier: Apache-2.0
"""scaling draws what a plan stored of numbers of ranks.

Decides what must be in the picture; how it looks to the eye is judged by eyes.
"""

import re
import xml.etree.ElementTree as xml

import h5py
import numpy as np
import pytest

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def plan(tmp_path):
    """A plan of three numbers of ranks, given out of order, at two depths."""
    rows = [(ranks, depth) for ranks in (8, 32, 16) for depth in (0, 1)]
    ranks, depth = (np.array(column) for column in zip(*rows))
    columns = {
        "ranks": ranks,
        "shard": ranks,
        "tokens": np.full(6, 512),
        "depth": depth,
        "step": ranks / 8 + 1.0 - 0.5 * depth,
        "exposed_share": ranks / 100 - 0.05 * depth,
        "tokens_per_s_rank": 512 / (ranks / 8 + 1.0 - 0.5 * depth),
        "fits": np.where(ranks == 8, b"no", b"yes").astype("S7"),
        "basis": np.full(6, b"assumed"),
    }
    path = tmp_path / "p.h5"
    with h5py.File(path, "w") as file:
        file.attrs["title"] = "a small plan"
        group = file.create_group("plan/rows")
        group.attrs["machine"] = "a machine"
        for name, values in columns.items():
            group[name] = values
    return path


def test_a_line_has_its_rows_in_the_order_of_ranks(tool, tmp_path, plan):
    said = tool("scaling", plan, "--svg", tmp_path / "p.svg", "--png", tmp_path / "p.png")
    assert said.status == 0, said.err
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    first, second = said.out.splitlines()
    assert first == (
        "depth 0: 8 to 32 ranks, step 2 to 5 s, exposed 8.0% to 32.0%, tokens/s per rank 256.0 to "
        "102.4 (0.400)"
    )
    assert second.startswith("depth 1: 8 to 32 ranks, step 1.5 to 4.5 s, exposed 3.0% to 27.0%")
    root = xml.parse(tmp_path / "p.svg").getroot()
    groups = {group.get("id"): group for group in root.iter(f"{SVG}g")}
    for what in ("step", "exposed", "tokens/s"):
        for depth in (0, 1):
            path = next(groups[f"{what} of depth {depth}"].iter(f"{SVG}path")).get("d")
            points = np.array(re.findall(r"[ML] (-?[\d.]+) (-?[\d.]+)", path), float)
            assert len(points) == 3
            # 8, 16, 32: equal steps to the right, and of all but tokens/s upwards.
            assert np.allclose(np.diff(points[:, 0]), np.diff(points[:, 0])[0], atol=1e-3)
            rises = np.diff(points[:, 1]) < 0
            assert np.all(rises) if what != "tokens/s" else not np.any(rises)
    assert "step that does not fit of depth 0" in groups
    texts = ["".join(text.itertext()).strip() for text in root.iter(f"{SVG}text")]
    assert {"step, s", "exposed, % of step", "tokens/s per rank", "a small plan"} <= set(texts)
    assert any("a machine; times: assumed" in text for text in texts)


def test_an_emulated_link_is_told_beside_the_figures(tool, tmp_path, plan):
    with h5py.File(plan, "a") as file:
        file["plan/rows"].attrs["link_rate_bytes_per_s"] = 1.25e8
    said = tool("scaling", plan, "--svg", tmp_path / "p.svg")
    assert said.out.startswith("measured on a link EMULATED at 1 Gb/s\n"), said.err
    root = xml.parse(tmp_path / "p.svg").getroot()
    texts = ["".join(text.itertext()).strip() for text in root.iter(f"{SVG}text")]
    assert any("times: assumed; measured on a link EMULATED at 1 Gb/s" in text for text in texts)


def test_what_is_no_plan_is_refused(tool, tmp_path, plan):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file.attrs["title"] = "none"
    png = tmp_path / "p.png"
    for words, message in (
        ((tmp_path / "other.h5", "--png", png), "has no /plan/rows/ranks: it is not of a plan"),
        ((tmp_path / "none.h5", "--png", png), "does not exist"),
        ((plan, "--png", plan, "--replace"), "is the plan's own file"),
        ((plan, "--png", png, "--svg", png), "two outputs have the same name"),
    ):
        said = tool("scaling", *words)
        assert said.status == 2 and message in said.err, said.err
        assert not png.exists()
    assert tool("scaling", plan, "--png", png).status == 0
    assert "exists" in tool("scaling", plan, "--png", png).err
