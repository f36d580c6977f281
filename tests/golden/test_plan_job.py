# SPDX-License-Identifier: Apache-2.0
"""The job plan: rows that agree with each other and with runs, refusals and limits.

Decides what the figures of a plan must say of each other; what they say of measured steps is
test_plan_measured.py's.
"""

import subprocess
import sys

import fixtures
import numpy as np
import pytest
from run_foregather import PROGRAM, ROOT, Foregather, Result, deck_text

H100 = ROOT / "inputs/machines/h100-8x-400gb.deck"
GUESS = "assumed: a test"
ALONE = {"OMPI_MCA_ess_singleton_isolated": "1"}  # A process without a launcher starts sooner.


@pytest.fixture
def run(tmp_path) -> Foregather:
    """Runs in this test's folder."""
    return Foregather(tmp_path)


@pytest.fixture
def deck() -> dict:
    """A plan of training Llama 3.1 8B on few and many H100."""
    return {
        "job.name": "plan",
        "plan.model": ROOT / "inputs/models/llama-3.1-8b.json",
        "plan.machine": H100,
        "plan.ranks": "8, 64, 1024",
        "plan.shards": "0, 8",
        "plan.depths": "0, 1, 2",
        "plan.tokens": "2048, 8192",
    }


def rows(result: Result) -> dict[str, np.ndarray]:
    """The columns of /plan/rows."""
    return result.table("/plan/rows")


def test_one_rank_and_two_tell_the_same(run, deck):
    alone, two = run(deck, 0, env=ALONE), run(deck, 2)
    assert alone.stdout.splitlines()[:-1] == two.stdout.splitlines()[:-1]
    for table in ("/plan/rows", "/plan/units"):
        a, b = alone.table(table), two.table(table)
        assert all(np.array_equal(a[name], b[name]) for name in a)
    assert two.seconds < 10


def test_rows_agree_with_each_other(run, deck):
    result = run(deck, 0, env=ALONE)
    r = rows(result)
    assert len(r["ranks"]) == 3 * 2 * 2 * 3
    assert np.array_equal(r["replicas"] * r["shard"], r["ranks"])
    tokens = r["ranks"] * r["tokens"] * r["passes"]
    assert np.allclose(r["tokens_per_s"], tokens / r["step"])
    assert np.allclose(r["tokens_per_s_rank"], r["tokens_per_s"] / r["ranks"])
    sums = [r[f"{way}_exposed"] for way in ("forward", "backward")] + [r["exposed_reduce"]]
    assert np.allclose(r["exposed_share"], sum(sums) / r["step"])
    assert np.all(r["untaxed_step"] <= r["step"] * (1 + 1e-9))
    # The compute stream does one thing at a time; waits for gradients' slots are in its uses too.
    compute = r["forward_compute"] + r["backward_compute"] + r["optimizer"]
    gap = 2e-3  # machine.step_gap
    assert np.all(r["step"] >= (compute - r["exposed_reduce"] + gap) * (1 - 1e-9))
    assert np.all(r["step"] <= (compute + sum(sums) + gap) * (1 + 1e-9))
    assert np.all(r["efficiency"][r["ranks"] == 8] == 1)
    whole = r["shard"] == r["ranks"]
    for tokens, depth in {(t, d) for t, d in zip(r["tokens"], r["depth"])}:
        same = whole & (r["tokens"] == tokens) & (r["depth"] == depth)
        by_ranks = dict(zip(r["ranks"][same], r["memory"][same]))
        memory = [by_ranks[ranks] for ranks in sorted(by_ranks)]
        assert len(memory) == 3 and np.all(np.diff(memory) < 0)  # more ranks, smaller parts
    assert set(r["basis"]) == {"assumed"}
    units = result.table("/plan/units")
    assert len(units["name"]) == 3 * 2 * 2 * len(set(units["name"]))


def test_from_t_star_on_less_than_two_percent_are_exposed(run, deck):
    deck |= {"plan.ranks": 64, "plan.shards": 0, "plan.depths": 1, "plan.tokens": 512}
    star = int(rows(run(deck, 0, env=ALONE))["hidden_from"][0])
    around = f"{star - star // 50}, {star}, {2 * star}"
    r = rows(run(deck | {"plan.tokens": around}, 0, env=ALONE))
    assert r["exposed_share"][0] >= 0.02 > r["exposed_share"][1] > r["exposed_share"][2]
    assert [("T*" in warning) for warning in r["warning"]] == [True, False, False]


def test_one_rank_alone_waits_for_nobody(run, deck):
    deck |= {"plan.ranks": "1, 2", "plan.shards": "1", "plan.tokens": 512, "plan.depths": 1}
    r = rows(run(deck, 0, env=ALONE))
    assert r["reduce"][0] == r["exposed_share"][0] == 0 < r["reduce"][1]  # 2: a sum over replicas
    assert r["hidden_from"][0] == 1 and "T*" not in r["warning"][0]
    # A step of three passes adds two gradients to the first.
    thrice = rows(run(deck | {"train.accumulate": 3}, 0, env=ALONE))
    assert thrice["reduce"][0] > 0


def test_figures_keep_their_digits_and_numbers_their_grammar(run, tmp_path):
    deck = {"job.name": "plan", "plan.model": fixtures.random_llama(tmp_path / "w.h5")}
    deck |= {"plan.machine": ROOT / "inputs/machines/two-cores.deck"}
    deck |= {"plan.ranks": 1, "plan.tokens": 1, "plan.depths": 0}
    deck["machine.memory"] = f"1 MB, {GUESS}"
    result = run(deck, 0, env=ALONE)
    r = rows(result)
    (row,) = [line.split() for line in result.stdout.splitlines() if line.startswith("     1 ")]
    assert r["step"][0] < 0.01 and row[7] == f"{r['step'][0]:.4g}"
    assert float(row[-2]) == pytest.approx(r["tokens_per_s_rank"][0], rel=1e-3)
    assert ": 1 of 1 setting, the first at 1 rank, 1 token, depth 0" in result.stdout
    # What decides `fits` is told like all other lines of the machine.
    assert f"\n           memory = 1 MB, {GUESS}\n" in result.stdout and r["fits"][0] == "no"
    observed = "; ".join(result.table("/provenance/deck")["observed"]) + ";"
    for right in (": 1 setting;", "of up to 1 token;", "; 1 pass in a step;"):
        assert right in observed, observed


def test_published_checks_are_of_the_published_model_and_machine(run, deck):
    deck |= {"plan.ranks": "8, 128", "plan.shards": 0, "plan.published": "true", "plan.depths": 1}
    assert "tokens/s per GPU" in run(deck, 0, env=ALONE).stdout
    for changes, why in (
        ({"plan.model": ROOT / "inputs/models/smollm2-135m.json"}, "is another model"),
        ({"plan.machine": ROOT / "inputs/machines/a100-8x-200gb.deck"}, "is another machine"),
        ({"plan.job": "score"}, "plan.job = score"),
    ):
        said = run(deck | changes, 0, env=ALONE).stdout
        (line,) = [line for line in said.splitlines() if line.startswith("published checks")]
        assert line.endswith(why) and "tokens/s per GPU" not in said


def test_the_decks_run_in_a_fresh_folder(tmp_path):
    (tmp_path / "inputs").symlink_to(ROOT / "inputs")
    for path in sorted((ROOT / "inputs").glob("plan*.deck")):
        said = f"inputs/{path.name}"
        assert f"\n#   ./foregather {said}\n" in path.read_text()
        told = subprocess.run([PROGRAM, said], cwd=tmp_path, capture_output=True, text=True)
        assert told.returncode == 0, told.stderr
        assert (tmp_path / path.with_suffix(".h5").name).exists()


def test_check_needs_no_place_to_write_to(run, deck, tmp_path):
    (tmp_path / "p.deck").write_text(deck_text(deck | {"output.file": "nowhere/p.h5"}))
    checked = run.words(["--check", tmp_path / "p.deck"])
    assert checked.code == 0 and "tokens/s" in checked.stdout
    assert "note: without --check this is refused: " in checked.stdout
    ran = run.words([tmp_path / "p.deck"], env=ALONE)
    assert ran.code == 2 and "nowhere" in ran.stderr


def test_tools_that_need_a_run_say_that_a_plan_is_none(run, deck, tmp_path):
    path = run(deck, 0, env=ALONE).path
    for words, why in (
        (["timeline", path, "--png", tmp_path / "t.png"], "of a plan, which runs nothing"),
        (["compare", path, path], "of a plan, which ran nothing: plans are not compared"),
    ):
        told = subprocess.run(
            [sys.executable, ROOT / "tools" / words[0], *words[1:]], capture_output=True, text=True
        )
        assert told.returncode == 2 and why in told.stderr, told.stderr
        assert "output.timeline" not in told.stderr


def test_a_faster_network_is_never_slower(run, deck):
    deck |= {"plan.ranks": 64, "plan.tokens": 1024}
    steps = [
        rows(run(deck | {"machine.network_bandwidth": f"{rate} Gb/s, {GUESS}"}, 0, env=ALONE))
        for rate in (25, 100, 400)
    ]
    for slow, fast in zip(steps, steps[1:]):
        assert np.all(fast["step"] <= slow["step"] * (1 + 1e-9))
        assert np.any(fast["step"] < 0.99 * slow["step"])


REFUSED = {
    "no source": ({"machine.memory": "80 GB"}, "machine.memory has neither basis nor source"),
    "unknown basis": ({"machine.memory": "80 GB, heard: x"}, 'the unknown basis "heard"'),
    "uneven shards": ({"plan.shards": "0, 3"}, "plan.shards: 3 does not divide the 8 ranks"),
    "no times": ({"plan.machine": ""}, "plan.machine: a plan needs times"),
    "both": ({"plan.measured": "b.h5"}, "times come from the one or from the other"),
    "no machine file": ({"plan.machine": "no.deck"}, "plan.machine: no.deck: the deck cannot"),
    "no model": ({"plan.model": "no.json"}, "plan.model: no.json cannot be read"),
    "no bench": (
        {"plan.machine": "", "plan.measured": H100},
        "is no complete file of a bench: cannot open results file of a bench",
    ),
    "too little memory": (
        {"fsdp.gather_memory": "1 MiB"},
        "fsdp.gather_memory = 1048576 bytes does not hold the 1 slot of",
    ),
    "long documents": (
        {"plan.document": 200000},
        "plan.document = 200000 is out of range: the model has 131072 positions",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_planned_is_refused_in_one_line(name, run, deck):
    changes, words = REFUSED[name]
    result = run(deck | changes, 0, env=ALONE, expect=2)
    assert result.stdout == "" and not result.path.exists()
    (line,) = result.stderr.splitlines()
    assert words in line and line.startswith(f"{result.deck}:"), line


def test_a_machine_file_is_refused_with_its_own_lines(run, deck, tmp_path):
    text = H100.read_text()
    (tmp_path / "m.deck").write_text(text.replace("step_gap", "stop_gap"))
    result = run(deck | {"plan.machine": "m.deck"}, 2, expect=2)
    number = 1 + [line.split(" ")[0] for line in text.splitlines()].index("step_gap")
    wanted = f"m.deck:{number}: unknown key machine.stop_gap (did you mean machine.step_gap?)"
    assert [line for line in result.stderr.splitlines() if "m.deck" in line] == [wanted]
    (tmp_path / "m.deck").write_text("\n".join(text.splitlines()[:12]))
    result = run(deck | {"plan.machine": "m.deck"}, 0, env=ALONE, expect=2)
    assert "does not say all that this plan needs: machine.attention_share, " in result.stderr


def test_check_and_template_speak_of_plan(run, deck, tmp_path):
    path = tmp_path / "p.deck"
    path.write_text(deck_text(deck | {"output.file": "p.h5"}))
    checked = run.words(["--check", path])
    ran = run.words([path], env=ALONE)
    assert checked.code == ran.code == 0 and ran.stdout.rsplit("results", 1)[0] in checked.stdout
    template = run.words(["--template", "plan"]).stdout
    given = {"model =": deck["plan.model"], "ranks =": 8, "tokens =": 64, "machine =": H100}
    for line, value in given.items():
        template = template.replace(f"\n{line}\n", f"\n{line} {value}\n")
    again = template.replace("\nfile =\n", "\nfile = t.h5\n")
    assert run(again, 0, env=ALONE).code == 0


def test_memory_is_that_of_the_jobs_own_plans(run, tmp_path):
    weights = fixtures.random_llama(tmp_path / "w.h5", vocab_size=300)
    tokens = fixtures.random_documents(tmp_path / "t.h5", 300, [64, 64])
    mine = {"model.weights": weights, "data.tokens": tokens, "batch.tokens": 64}
    for job in ("score", "train"):
        own = mine | {"job.name": job, "output.file": "r.h5", "comm.transport": "mpi"}
        own |= {"device.threads": 1}
        own |= {"train.steps": 1, "train.learning_rate": 1} if job == "train" else {}
        (tmp_path / "own.deck").write_text(deck_text(own))
        text = run.words(["--check", tmp_path / "own.deck", "--ranks", 2]).stdout
        (total,) = [line.split() for line in text.splitlines() if line.startswith("  total")]
        plan = {"job.name": "plan", "plan.job": job, "plan.model": weights, "plan.ranks": 2}
        plan |= {"plan.machine": ROOT / "inputs/machines/two-cores.deck", "plan.tokens": 64}
        said = run(plan | {"plan.depths": 1}, 0, env=ALONE).stdout
        (row,) = [line.split() for line in said.splitlines() if line.startswith("     2 ")]
        assert row[4:6] == total[1:3]


def test_sixteen_thousand_ranks_and_eighty_layers_take_seconds(tmp_path):
    deck = {
        "job.name": "plan",
        "plan.model": ROOT / "inputs/models/llama-3.1-70b.json",
        "plan.machine": H100,
        "plan.ranks": 16384,
        "plan.depths": "0, 1, 2, 3, 4",
        "plan.tokens": "4096, 8192",
        "output.file": tmp_path / "p.h5",
    }
    (tmp_path / "p.deck").write_text(deck_text(deck))
    # A process of its own: the most memory of any child is what the system remembers.
    code = (
        "import resource, subprocess, sys, time; begin = time.monotonic(); "
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); "
        "print(time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    words = [sys.executable, "-c", code, PROGRAM, tmp_path / "p.deck"]
    told = subprocess.run(words, capture_output=True, text=True, check=True)
    seconds, kib = map(float, told.stdout.split())
    assert seconds < 10 and kib < 1 << 20


def test_models_and_machines_of_the_inputs_can_be_planned(run):
    machines = sorted((ROOT / "inputs/machines").glob("*.deck"))
    models = sorted((ROOT / "inputs/models").glob("*.json"))
    assert len(machines) > 3 and len(models) > 4
    pairs = [(models[i % len(models)], m) for i, m in enumerate(machines)]
    for model, machine in [*pairs, *((m, H100) for m in models)]:
        deck = {"job.name": "plan", "plan.model": model, "plan.machine": machine}
        result = run(deck | {"plan.ranks": 16, "plan.tokens": 4096}, 0, env=ALONE)
        assert "warning" in result.stdout or "fits" in result.stdout
    decks = [path for path in (ROOT / "inputs").glob("plan*.deck")]
    assert len(decks) == 2
    for path in decks:
        told = subprocess.run(
            [PROGRAM, "--check", path.relative_to(ROOT)], cwd=ROOT, capture_output=True, text=True
        )
        assert told.returncode == 0, told.stderr
