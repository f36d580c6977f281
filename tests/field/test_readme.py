# SPDX-License-Identifier: Apache-2.0
"""The README says only what is there: files, targets, keys and the deck that it shows."""
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_file_that_the_readme_names_exists():
    named = re.findall(r"`((?:src|include|tools|inputs|jobs|tests)/[\w./-]+)", README)
    assert len(named) > 12
    missing = [name for name in named if not (ROOT / name).exists()]
    assert missing == []


def test_every_target_that_the_readme_names_is_in_make_help():
    help_text = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    targets = set(re.findall(r"\bmake ([a-z-]+)", README)) - {"a"}
    assert {"run", "check", "help", "deps"} <= targets
    assert [target for target in sorted(targets) if not re.search(rf"^  {target}\s", help_text, re.M)] == []


def test_every_key_that_the_readme_names_is_known_to_the_program():
    keys = subprocess.run([ROOT / "foregather", "--help"], capture_output=True, text=True, check=True).stdout
    named = re.findall(r"`(?:--)?((?:job|model|data|device|mesh|fsdp|comm|batch|train|checkpoint|bench|plan|machine|output)\.[a-z_]+)(?: =|`)", README)
    assert len(named) > 2
    assert [key for key in named if not re.search(rf"^{re.escape(key)}$", keys, re.M)] == []


def test_the_deck_of_the_readme_is_refused_for_nothing_but_its_absent_inputs(tmp_path):
    deck = tmp_path / "readme.deck"
    deck.write_text(re.search(r"```ini\n(.*?)```", README, re.S).group(1), encoding="utf-8")
    told = subprocess.run([ROOT / "foregather", "--check", deck], cwd=tmp_path, capture_output=True, text=True)
    assert told.returncode == 2
    assert "run/smollm2-135m.h5" in told.stderr and len(told.stderr.splitlines()) == 1


def test_decks_of_inputs_are_refused_for_nothing_but_their_absent_inputs(tmp_path):
    decks = sorted((ROOT / "inputs").glob("*.deck"))
    assert len(decks) > 3
    for deck in decks:
        told = subprocess.run([ROOT / "foregather", "--check", deck], cwd=tmp_path, capture_output=True, text=True)
        assert told.returncode == 2 and len(told.stderr.splitlines()) == 1, told.stderr
        assert re.search("cannot (open|be read)", told.stderr), told.stderr
