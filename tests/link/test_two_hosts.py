# SPDX-License-Identifier: Apache-2.0
"""Two hosts over a real, slow link: the same scores, and a prefetch that hides the gathers.

Decides what must be seen on such hosts; how spans are paired is in tests/golden/spans.py. Tests
that look at the clock take medians of alternating runs, and may try again on a busy machine.
"""

from dataclasses import dataclass, field

import fixtures
import numpy as np
import pytest
from hosts import bits_per_second, default_burst
from run_foregather import Foregather, Result
from spans import spans_of

LAYERS = 6
SHAPE = {
    "hidden_size": 256,
    "intermediate_size": 688,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 300,
}
LENGTH, TOKENS, PASSES = 256, 1536, 4
PAIRS = 3  # Depth 0 and 1 in turn: medians are of so many.
ROUNDS = 3  # Of pairs, until one shows what the clock can show.
BUSY = 0.8  # A gather takes this part of a layer's compute.
PAYLOAD = 0.95  # Of a frame, at least, without the headers of TCP, IP and Ethernet.


@dataclass
class Pairs:
    """Runs at depth 0 and depth 1, in turn, over a link on which gathers take about as long as
    computing.
    """

    rate: str
    serial: list[Result] = field(default_factory=list)
    ahead: list[Result] = field(default_factory=list)

    def ratio(self) -> float:
        """Step time at depth 0 over that at depth 1: the median of the pairs."""
        runs = zip(self.serial, self.ahead)
        return float(np.median([run_seconds(a) / run_seconds(b) for a, b in runs]))

    def exposed(self) -> float:
        """Exposed time at depth 1 over that at depth 0: the median of the pairs."""
        runs = zip(self.serial, self.ahead)
        return float(
            np.median([prefetch(b)["exposed_s"] / prefetch(a)["exposed_s"] for a, b in runs])
        )

    def convincing(self) -> bool:
        """Whether the clock shows what it should."""
        seen = [prefetch(run)["verdict"] for run in self.serial + self.ahead]
        return self.ratio() >= 1.25 and self.exposed() < 0.5 and set(seen) == {"observed"}


def kbit(bytes_per_second: float) -> str:
    """A rate as the launcher takes it."""
    return f"{8e-3 * bytes_per_second:.0f}kbit"


def prefetch(result: Result) -> dict:
    """The one row of /timing/prefetch."""
    return result.rows("/timing/prefetch", "direction")["forward"]


def run_seconds(result: Result) -> float:
    """From the first pass to the last, on the slowest rank."""
    return result.rows("/timing/phases", "name")["run"]["seconds_max"]


@pytest.fixture(scope="module")
def deck(tmp_path_factory) -> dict:
    """A model whose layers compute for tens of milliseconds; four passes of two ranks."""
    folder = tmp_path_factory.mktemp("inputs")
    lengths = [LENGTH] * (2 * PASSES * TOKENS // LENGTH)
    vocabulary = SHAPE["vocab_size"]
    return {
        "model.weights": fixtures.random_llama(folder / "model.h5", **SHAPE),
        "data.tokens": fixtures.random_documents(folder / "tokens.h5", vocabulary, lengths),
        "batch.tokens": TOKENS,
        "device.threads": 1,
    }


@pytest.fixture(scope="module")
def one_host(deck, tmp_path_factory) -> Result:
    """The same job on two ranks of one host, which gather at the speed of memory."""
    run = Foregather(tmp_path_factory.mktemp("one"))
    return run(deck | {"comm.transport": "mpi"}, ranks=2)


@pytest.fixture(scope="module")
def rounds(deck, one_host, two_hosts) -> list[Pairs]:
    """Pairs of runs until a round of them convinces, at most ROUNDS."""
    found: list[Pairs] = []
    alone = one_host
    while len(found) < ROUNDS and not any(pairs.convincing() for pairs in found):
        spans = spans_of(alone, 0)
        compute = np.median([c.end - c.begin for c in spans.computes if c.unit.startswith("layer")])
        rate = max(gather.bytes for gather in spans.gathers) / (BUSY * 1e-9 * compute)
        pairs = Pairs(kbit(rate / PAYLOAD))
        run = two_hosts(pairs.rate)
        for _ in range(PAIRS):
            pairs.serial.append(run(deck | {"fsdp.forward_prefetch": 0}, ranks=2))
            pairs.ahead.append(run(deck | {"fsdp.forward_prefetch": 1}, ranks=2))
        found.append(pairs)
        alone = pairs.serial[-1]
    return found


@pytest.fixture(scope="module")
def four(deck, rounds, two_hosts) -> list[Result]:
    """Two ranks on each host, at depth 0 and at depth 1, over the same link."""
    run = two_hosts(rounds[-1].rate)
    return [run(deck | {"fsdp.forward_prefetch": depth}, ranks=4) for depth in (0, 1)]


def all_runs(rounds: list[Pairs]) -> list[Result]:
    """Every run of two ranks over the link."""
    return [run for pairs in rounds for run in pairs.serial + pairs.ahead]


def chosen(result: Result) -> str:
    """The transport in force."""
    return result.rows("/provenance/choices", "name")["transport"]["value"]


def test_ranks_see_two_hosts_and_gather_over_mpi(rounds, four):
    for result in [*all_runs(rounds), *four]:
        ranks = len(result.table("/timing/ranks")["packs"])
        hosts = result.table("/provenance/hosts")["host"].tolist()
        assert len(set(hosts)) == 2 and hosts == sorted(hosts)  # Numbered host by host.
        assert f"{ranks} ranks on 2 nodes" in result.stdout
        assert chosen(result) == "mpi"


def test_scores_hold_the_same_bytes_on_one_host_and_two_at_any_depth(rounds, four, one_host):
    expected = one_host.score_bytes()
    for result in [*all_runs(rounds), *four]:
        assert result.score_bytes() == expected


def test_link_is_as_slow_as_it_says(rounds):
    for pairs in rounds:
        for spans in (spans_of(run, rank) for run in pairs.serial for rank in range(2)):
            taken = sum(gather.end - gather.begin for gather in spans.gathers) * 1e-9
            at_rate = taken * bits_per_second(pairs.rate) / 8
            saved_up = len(spans.gathers) * default_burst(pairs.rate)  # While computing.
            assert sum(gather.bytes for gather in spans.gathers) <= at_rate + saved_up


def test_depth_0_never_begins_a_gather_ahead(rounds, four):
    for result in [*(run for pairs in rounds for run in pairs.serial), four[0]]:
        assert prefetch(result)["begun_share"] == 0
        assert prefetch(result)["gathers_ahead"] == 0


def test_depth_1_is_observed(rounds, four):
    for result in [*(run for pairs in rounds for run in pairs.ahead), four[1]]:
        figures = prefetch(result)
        assert figures["issued_ahead"] == 1
        assert figures["gathers_ahead"] == figures["gathers"] - 1
    verdicts = [{prefetch(run)["verdict"] for run in pairs.ahead} for pairs in rounds]
    assert {"observed"} in verdicts, verdicts
    assert prefetch(four[1])["verdict"] == "observed", prefetch(four[1])


def test_exposed_time_is_halved(rounds):
    shares = [pairs.exposed() for pairs in rounds]
    assert min(shares) < 0.5, shares


def test_step_is_shorter_by_a_quarter_on_a_balanced_link(rounds):
    ratios = [pairs.ratio() for pairs in rounds]
    assert max(ratios) >= 1.25, ratios


def test_each_host_fetches_what_it_lacks_once(four):
    for result in four:
        table, units = result.table("/timing/ranks"), result.table("/timing/units")
        passes = PASSES // 2
        assert table["gathers_issued"].tolist() == [passes * len(units["bytes"])] * 4
        lacking = passes * int(units["bytes"].sum()) // 2
        assert table["bytes_gathered"].tolist() == [lacking, 0, lacking, 0]
        for rank in range(4):
            fetched = sum(gather.bytes for gather in spans_of(result, rank).gathers)
            assert fetched == table["bytes_gathered"][rank]
