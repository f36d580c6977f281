# SPDX-License-Identifier: Apache-2.0
"""No key of a deck is dropped: what is wrong is refused at once, what is right is accounted for.

Decides the faults of decks and command lines; what each key does is test_every_key's affair.
"""

import os
from pathlib import Path

import pytest
from run_foregather import PROGRAM
from said import bare, help_keys, lines, refusal, template_keys

# Neither input exists: a refusal that speaks of them came too late.
DECK = """[job]
name = score
[model]
weights = absent-weights.h5
[data]
tokens = absent-tokens.h5
[fsdp]
forward_prefetch = 1
[output]
file = results.h5
"""
LINE = "forward_prefetch = 1"

# What takes the place of LINE (line 8), the line that is named, and what is said there.
FAULTS = {
    "unknown_key": (
        "forward_prefetch = 1\nprefetch_dept = 1",
        9,
        ("unknown key fsdp.prefetch_dept", "did you mean fsdp.forward_prefetch or"),
    ),
    "wrong_section": (
        "transport = mpi",
        8,
        ("unknown key fsdp.transport", "wrong section", "comm.transport"),
    ),
    "unknown_section": ("[fdsp]\nforward_prefetch = 1", 8, ("unknown section [fdsp]", "[fsdp]?")),
    "wrong_case": (
        "Forward_Prefetch = 1",
        8,
        ("unknown key fsdp.Forward_Prefetch", "case matters", "fsdp.forward_prefetch"),
    ),
    "key_twice": (
        "forward_prefetch = 1\nforward-prefetch = 1",
        9,
        ("fsdp.forward_prefetch is given twice", ":8"),
    ),
    "bad_unit": (
        "forward_prefetch = 8 parsecs",
        8,
        ("fsdp.forward_prefetch", "whole number, 0 to 64", '"8 parsecs"'),
    ),
    "out_of_range": (
        "forward_prefetch = -1",
        8,
        ("fsdp.forward_prefetch", "whole number, 0 to 64", '"-1"'),
    ),
}


def only_the_deck_is_left(folder: Path) -> bool:
    """Whether a run left nothing beside its deck."""
    return [path.suffix for path in folder.iterdir()] == [".deck"]


@pytest.mark.parametrize("fault", FAULTS)
def test_t05_fault_is_told_once_with_its_line_and_the_nearest_key(fault, run, tmp_path):
    replacement, line, words = FAULTS[fault]
    result = run(DECK.replace(LINE, replacement), ranks=4, expect=None)
    message = refusal(result, *words)
    assert message.startswith(f"{result.deck}:{line}: ")
    assert "absent" not in message and only_the_deck_is_left(tmp_path)


def test_a3_misspelt_key_is_refused_with_the_nearest(run, tmp_path):
    result = run(DECK.replace(LINE, "forward_prefech = 1"), ranks=4, expect=None)
    message = refusal(result)
    assert message == (
        f"{result.deck}:8: unknown key fsdp.forward_prefech (did you mean fsdp.forward_prefetch?)"
    )
    assert only_the_deck_is_left(tmp_path)


def test_t05_key_before_any_section_is_refused_with_the_section_it_needs(run):
    result = run("forward_prefetch = 2\n" + DECK, ranks=4, expect=None)
    message = refusal(result, "forward_prefetch comes before any section", "[fsdp]")
    assert message.startswith(f"{result.deck}:1: ")


def test_a7_training_key_in_a_score_deck_is_told_before_the_job_and_recorded(run, ab):
    result = run(ab | {"train.learning_rate": "1e-3"}, ranks=2)
    told = result.stdout.splitlines()
    notes = [i for i, line in enumerate(told) if "train.learning_rate" in line]
    table = next(i for i, line in enumerate(told) if line.startswith("----"))
    assert notes and notes[0] < table
    assert told[notes[0]].startswith(f"note: {result.deck}:")
    assert told[notes[0]].endswith("train.learning_rate = 1e-3 is inert: key of job train")
    row = result.key("train.learning_rate")
    assert (row["value"], row["origin"], row["state"]) == ("1e-3", "deck", "inert")
    assert row["reason"] == "key of job train" and row["observed"] == ""
    checked = run.words(["--check", result.deck, "--output.file=other.h5"])
    assert "train.learning_rate = 1e-3 is inert: key of job train" in checked.stdout


def test_a7_training_key_in_a_strict_score_deck_is_refused_with_its_place(run, ab):
    changes = {"train.learning_rate": "1e-3", "job.strict": True}
    result = run(ab | changes, ranks=4, expect=None)
    said = refusal(result, "job.strict = true", lines_said=2).splitlines()
    assert said[1].startswith(f"{result.deck}:")
    assert said[1].endswith("train.learning_rate = 1e-3 is inert: key of job train")


def test_t05_training_key_of_the_wrong_type_is_refused_in_a_score_deck_too(run):
    result = run(DECK + "[train]\nlearning_rate = fast\n", ranks=4, expect=None)
    message = refusal(result, "train.learning_rate takes a number", '"fast"')
    assert message.startswith(f"{result.deck}:12: ")


TRAINING = """[job]
name = train
[model]
weights = absent-weights.h5
[data]
tokens = absent-tokens.h5
[train]
steps = 2
learning_rate = 1e-3
[output]
file = results.h5
"""
# What takes the place of a line, and what is said.
TRAINING_FAULTS = {
    "misspelt": ("steps = 2", "stpes = 2", ":8: unknown key train.stpes (did you mean train.steps"),
    "missing": ("steps = 2", "", ": train.steps is required and not given"),
    "out_of_range": ("steps = 2", "steps = 0", ":8: train.steps is out of range"),
    "unit": ("steps = 2", "steps = 2 parsecs", ":8: train.steps takes a whole number, 1 to 1000000000"),
    "wrong_section": ("steps = 2", "steps = 2\nkeep = 3", ":9: unknown key train.keep (wrong"),
    "no_model": ("weights = absent-weights.h5", "", ": train needs model.weights"),
    "two_models": (
        "[data]",
        "config = absent.json\n[data]",
        ":5: model.config = absent.json does not go with model.weights",
    ),
}


@pytest.mark.parametrize("fault", TRAINING_FAULTS)
def test_t05_fault_of_a_training_deck_is_told_once(fault, run, tmp_path):
    old, new, said = TRAINING_FAULTS[fault]
    (tmp_path / "train.deck").write_text(TRAINING.replace(old, new, 1))
    message = refusal(run.words(["--check", "train.deck"]))
    assert message.startswith(f"train.deck{said}")
    assert only_the_deck_is_left(tmp_path)


# Words of the command line and what is said of them.
WORDS = {
    "unknown_key": (
        "--fsdp.prefetch_dept=1",
        ("unknown key fsdp.prefetch_dept", "forward_prefetch or"),
    ),
    "wrong_section": ("--fsdp.transport=mpi", ("fsdp.transport", "comm.transport?")),
    "unknown_section": (
        "--fdsp.forward_prefetch=1",
        ("unknown key fdsp.", "fsdp.forward_prefetch?"),
    ),
    "wrong_case": ("--fsdp.Forward_Prefetch=1", ("case matters", "fsdp.forward_prefetch?")),
    "key_twice": (
        "--fsdp.forward_prefetch=1 --fsdp.forward-prefetch=2",
        ("fsdp.forward_prefetch is given twice",),
    ),
    "bad_unit": ("--fsdp.forward_prefetch=8parsecs", ("fsdp.forward_prefetch", '"8parsecs"')),
    "out_of_range": ("--fsdp.forward_prefetch=-1", ("fsdp.forward_prefetch", '"-1"')),
}


@pytest.mark.parametrize("fault", WORDS)
def test_t05_fault_on_the_command_line_is_told_once(fault, run, tmp_path):
    words, said = WORDS[fault]
    (tmp_path / "good.deck").write_text(DECK)
    checked = run.words(["--check", "good.deck", *words.split()])
    message = refusal(checked, *said)
    assert message.startswith("command line: ")
    assert "absent" not in message and only_the_deck_is_left(tmp_path)
    if fault == "unknown_key":  # The others come from the same reader: once tells of all.
        started = run.words(["good.deck", *words.split()], ranks=4)
        assert refusal(started) == message and only_the_deck_is_left(tmp_path)


def test_t05_all_errors_are_told_at_once_in_the_order_of_lines(run):
    deck = DECK.replace(LINE, "forward_prefetch = many\nprefetch_dept = 1\n[cmm]\ntimeout = 3 s")
    result = run(deck + "existing = perhaps\n", 4, ["--batch.tokens=0"], expect=None)
    message = refusal(result, lines_said=5).splitlines()
    places = [line.removeprefix(str(result.deck)).split(": ")[0] for line in message]
    assert places == [":8", ":9", ":10", ":14", "command line"]
    for line, word in zip(message, ("many", "prefetch_dept", "[cmm]", "perhaps", "batch.tokens")):
        assert word in line


def test_t05_check_refuses_as_the_run_does(run, tmp_path):
    deck = tmp_path / "wrong.deck"
    deck.write_text(DECK.replace(LINE, FAULTS["unknown_key"][0]))
    checked = run.words(["--check", deck])
    started = run.words([deck], ranks=4)
    assert checked.code == started.code == 2
    assert lines(checked.stderr) == lines(started.stderr) != []
    assert checked.stdout == "" and checked.seconds < 5


@pytest.mark.parametrize("kind", ["absent", "directory", "unreadable", "binary", "empty_name"])
def test_deck_that_cannot_be_read_is_refused_by_its_path(kind, run, tmp_path):
    path = tmp_path / "the.deck"
    if kind == "directory":
        path.mkdir()
    elif kind == "unreadable":  # Opens, for root too, and fails to read.
        path.symlink_to("/proc/self/mem")
    elif kind == "binary":
        path.write_bytes(os.urandom(100) + b"\0\xff\n" + os.urandom(3000))
    elif kind == "empty_name":
        path = Path("")
    named = "" if kind == "empty_name" else path
    for result in (run.words([named], ranks=4), run.words(["--check", named])):
        said = lines(result.stderr)
        assert result.code == 2 and len(said) == 1, result.stderr
        assert kind == "empty_name" or str(path) in said[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("{deck} stray", 'stray word "stray"'),
        ("{deck} fsdp.forward_prefetch=1", "did you mean --fsdp.forward_prefetch=1?"),
        ("{deck} {deck}", "stray word"),
        ("--chec {deck}", "did you mean --check?"),
        ("--ver", "did you mean --version?"),
        ("-check {deck}", "did you mean --check?"),
        ("{deck} --fsdp.forward_prefetch", "has no value"),
        ("{deck} --frobnicate", "unknown flag --frobnicate"),
        ("--check {deck} --ranks", "--ranks takes a whole number"),
        ("--check {deck} --ranks=0", "--ranks takes a whole number"),
        ("--check {deck} --ranks-per-node 2", "needs --ranks"),
        ("{deck} --ranks 2", "go with --check only"),
        ("--template sing", "sing"),
        ("--template", "--template needs the name of a job"),
        ("--help fsdp.forward_prefech", "fsdp.forward_prefetch"),
        ("--help --version", "do not go together"),
        ("", "usage: foregather"),
    ],
)
def test_words_that_mean_nothing_are_refused(words, said, tmp_path):
    deck = tmp_path / "good.deck"
    deck.write_text(DECK)
    result = bare(*words.format(deck=deck).split())
    assert result.returncode == 2 and result.stdout == ""
    assert said in result.stderr and "absent" not in result.stderr


@pytest.mark.parametrize("words", ["{deck} stray", "{deck} --chec", "--check {deck} --rank=2"])
def test_j2_words_that_mean_nothing_are_told_once_on_four_ranks(words, run, tmp_path):
    (tmp_path / "good.deck").write_text(DECK)
    refusal(run.words(words.format(deck=tmp_path / "good.deck").split(), ranks=4))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--help",), "usage: foregather DECK"),
        (("--help", "fsdp"), "fsdp.forward_prefetch"),
        (("--help", "fsdp.forward_prefetch"), "Units gathered ahead"),
        (("--template", "score"), "forward_prefetch = 1"),
        (("--version",), "hdf5"),
    ],
)
def test_information_needs_no_launcher_and_no_environment(words, said):
    result = bare(*words)
    assert result.returncode == 0 and result.stderr == ""
    assert said in result.stdout
    if words == ("--help", "fsdp"):
        assert "comm.transport" not in result.stdout


def test_information_is_told_once_on_three_ranks(run):
    result = run.words(["--version"], ranks=3)
    assert result.code == 0 and result.stdout == bare("--version").stdout


def test_version_names_all_that_the_program_is_made_of():
    text = bare("--version").stdout
    for part in (
        "foregather",
        "git",
        "compiler",
        "mpi",
        "nccl",
        "cuda",
        "hdf5",
        "blas",
        "backends",
    ):
        assert [line for line in text.splitlines() if line.startswith(part) and line.split()[1:]]


def test_template_and_help_tell_of_the_same_keys():
    keys = help_keys()
    assert len(keys) == len(set(keys)) > 40
    templates = {job: list(template_keys(job)) for job in ("score", "train", "bench", "plan")}
    for job, own in templates.items():  # Each in the order of the table.
        assert own == [key for key in keys if key in own] and "job.name" in own, job
    assert set(keys) == set().union(*templates.values())
    for key in keys:
        section = bare("--help", key.split(".")[0]).stdout
        assert f"{key}\n" in section and f"{key}\n" in bare("--help", key).stdout


def test_t05_good_deck_accounts_for_every_key_with_its_value_and_origin(run, ab):
    template = bare("--template", "score").stdout
    given = {"weights =": ab["model.weights"], "tokens =": ab["data.tokens"], "file =": "out.h5"}
    for name, value in given.items():
        template = template.replace(f"\n{name}\n", f"\n{name} {value}\n")
    template = template.replace("\nthreads = 0\n", "\n")
    result = run(template, ranks=4, overrides=["--comm.transport=mpi"])
    result.path = result.deck.parent / "out.h5"
    rows = result.rows("/provenance/deck", "key")
    defaults = template_keys()
    others = template_keys("plan") | template_keys("bench") | template_keys("train") | defaults
    # A required key of another job has no default.
    assert list(result.table("/provenance/deck")["key"]) == help_keys()
    expected = {key: (value, "default") for key, value in others.items()}
    expected |= {key: (value, "deck") for key, value in defaults.items()}
    expected |= {
        "model.weights": (str(ab["model.weights"]), "deck"),
        "data.tokens": (str(ab["data.tokens"]), "deck"),
        "output.file": ("out.h5", "deck"),
        "device.threads": ("0", "default"),
        "comm.transport": ("mpi", "command line"),
    }
    assert {key: (row["value"], row["origin"]) for key, row in rows.items()} == expected
    for key, row in rows.items():
        required = key in ("job.name", "model.weights", "data.tokens", "output.file")
        assert row["default"] == ("" if required else others[key])
        assert row["state"] in ("honoured", "inert"), key
        assert key in defaults or row["reason"].startswith("key of job"), key
        assert row["observed"] if row["state"] == "honoured" else row["reason"], key
    assert result.read("/provenance/deck_text") == template


def test_deck_effective_can_be_run_again_and_gives_the_same_scores(run, ab, tmp_path):
    first = run(ab | {"fsdp.piece_bytes": 32}, ranks=2, overrides=["--batch.tokens=4"])
    again = run(first.read("/provenance/deck_effective"), 2, ["--output.file=again.h5"])
    again.path = tmp_path / "again.h5"
    assert again.score_bytes() == first.score_bytes()
    assert again.key("batch.tokens")["value"] == "4"
    assert again.key("fsdp.piece_bytes")["value"] == "32"


def test_program_of_these_tests_is_there():
    assert os.access(PROGRAM, os.X_OK), f"{PROGRAM} is not built"
