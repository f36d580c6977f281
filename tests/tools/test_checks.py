# SPDX-License-Identifier: Apache-2.0
"""The checks of lint find each fault they are for, and nothing in clean files.

Decides what counts as caught; the real source is checked by `make lint`.
"""

import subprocess
import sys

import pytest
from conftest import ROOT

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


@pytest.fixture
def check(tmp_path):
    """Writes files and runs a check on them: check("rooms", {path: text}) gives (status, lines)."""

    def call(name: str, files: dict[str, str]) -> tuple[int, list[str]]:
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        done = subprocess.run(
            [sys.executable, ROOT / "tools" / f"check_{name}", *files],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.stderr == ""
        return done.returncode, done.stdout.splitlines()

    return call


def includes(*headers: str) -> str:
    return SPDX + "".join(f"#include {header}\n" for header in headers)


def test_rooms_takes_what_the_graph_allows(check):
    files = {
        "include/foregather/comm/c.hpp": includes("<string>", "<mpi.h>", "<foregather/mesh/m.hpp>"),
        "src/comm/host/c.cpp": includes(
            "<foregather/comm/c.hpp>", "<sys/stat.h>", "<vector>", "<mpi.h>", '"../near.hpp"'
        ),
        "src/comm/near.hpp": includes("<foregather/base/error.hpp>"),
        "src/main.cpp": includes("<nlohmann/json.hpp>", "<foregather/job/job.hpp>"),
        "tests/unit/comm/c_test.cpp": includes("<foregather/job/job.hpp>", "<mpi.h>"),
    }
    assert check("rooms", files) == (0, [])


@pytest.mark.parametrize(
    "path, headers, fault",
    [
        ("src/kernels/k.cpp", ["<foregather/mesh/m.hpp>"], "kernels may not include mesh"),
        ("include/foregather/base/b.hpp", ["<foregather/deck/d.hpp>"], "(it may: nothing)"),
        ("src/main.cpp", ["<foregather/io/h5.hpp>"], "main may not include io"),
        ("src/job/j.cpp", ["<mpi.h>"], "job may not include <mpi.h>: it belongs to mesh, comm"),
        ("src/model/m.cpp", ["<hdf5.h>"], "model may not include <hdf5.h>"),
        ("src/deck/d.cpp", ['"../base/b.hpp"'], "is not of this room's src"),
        ("include/foregather/io/i.hpp", ['"h5.hpp"'], "is not of this room's src"),
        ("src/attic/a.cpp", [], "there is no room attic"),
        ("src/io/i.cpp", ["<foregather/attic/a.hpp>"], "there is no room attic"),
        (
            "src/io/i.cpp",
            ["<foregather/io/i.hpp>", "<hdf5.h>", "<string>"],
            "string after libraries",
        ),
    ],
)
def test_rooms_finds(check, path, headers, fault):
    status, lines = check("rooms", {path: includes(*headers)})
    assert status == 1
    assert len(lines) == 1 and lines[0].startswith(path) and fault in lines[0]


def test_pairs_finds_widows_of_both_sides(check):
    does = SPDX + "void HostKernels::do_norm(Floats x) {}\n"
    files = {
        "src/kernels/host/norm.cpp": does,
        "src/kernels/cuda/norm.cu": does,
        "src/kernels/host/loss.cpp": does,
        "src/kernels/cuda/graph.cpp": SPDX + "void CudaKernels::do_graph(Stream& s) {}\n",
        "src/kernels/host/lanes.cpp": SPDX,
        "src/device/host/stream.cpp": SPDX + "void Worker::wait(const Event& e) {}\n",
        "src/comm/host/mpi.cpp": does,
        "src/comm/cuda/nccl.cpp": does,
    }
    assert check("pairs", files) == (
        1,
        [
            "src/kernels/host/loss: has no twin in src/kernels/cuda",
            "src/kernels/cuda/graph: has no twin in src/kernels/host",
        ],
    )
    for widow in ("src/kernels/host/loss.cpp", "src/kernels/cuda/graph.cpp"):
        del files[widow]
    assert check("pairs", files) == (0, [])


# Each opens a function in a way of its own; the body is added, and closed by the last brace.
HEADS = [
    "int add(int a, int b) {",
    "namespace a::b {\ntemplate <class T, std::size_t n = f<int>()>\nclass C : public D<T> {\n"
    "    C() : a_{1}, b_(2), c_{} {",
    "const auto f = [](int x) {",
    "bool operator()(const S& s = {}) const noexcept {",
    "struct S {\n    long big = 1'000, brace = '{';\n    // a comment {{{\n"
    '    const char* text = R"x("{{{)x";\n    void run() {',
]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("length, status", [(60, 0), (61, 1)])
def test_sizes_counts_the_lines_of_a_function(check, head, length, status):
    opened = head.splitlines()
    body = ['    if (x) { g("}"); } // }'] * (length - 2)
    depth = 2 if "namespace" in head else 1 if "struct" in head else 0
    text = (
        SPDX + "\n".join(opened + body + ["}"] + ["};"] * depth) + "\nint small() { return 1; }\n"
    )
    got, lines = check("sizes", {"src/io/long.cpp": text})
    assert got == status
    if status:
        assert len(lines) == 1
        assert lines[0].startswith(f"src/io/long.cpp:{len(opened) + 1}: ")
        assert lines[0].endswith("has 61 lines, more than 60")


def test_sizes_sees_each_of_neighbouring_functions(check):
    text = SPDX + "".join(f"void f{n}() {{\n" + "    g();\n" * 38 + "}\n" for n in range(3))
    assert check("sizes", {"src/io/many.cpp": text}) == (0, [])


PYTHON = "#!/usr/bin/env python3\n# SPDX-License-Identifier: Apache-2.0\n"


@pytest.mark.parametrize(
    "path, text, fault",
    [
        ("src/io/a.cpp", SPDX + "\n" * 400, "401 lines, more than 400"),
        ("src/io/a.cpp", "int x;\n", "the first line has no SPDX"),
        ("tools/a", "#!/bin/sh\n\n# SPDX-License-Identifier: Apache-2.0\n", "no SPDX"),
        ("include/foregather/io/a.hpp", SPDX + "#ifdef USE_CUDA\n#endif\n", "conditional code"),
        ("src/io/a.cpp", SPDX + "#if defined(X)\n#endif\n", "conditional code"),
        ("README.md", "Look into " + "/ho" + "me/me/runs.\n", "forbidden: /" + "home"),
        ("inputs/a.deck", "weights = /wo" + "rk/a.h5\n", "forbidden: /" + "work"),
        ("src/io/a.cpp", SPDX + "// TO" + "DO: the rest\n", "forbidden: TO" + "DO"),
        ("tools/a.py", PYTHON + "def f():\n" + "    g()\n" * 60, "f has 61 lines, more than 60"),
        ("tools/a", PYTHON + "def f(:\n", "invalid syntax"),
    ],
)
def test_sizes_finds(check, path, text, fault):
    status, lines = check("sizes", {path: text})
    assert status == 1
    assert len(lines) == 1 and lines[0].startswith(path) and fault in lines[0]


def test_sizes_takes_clean_files(check):
    files = {
        "src/io/a.cpp": SPDX + "#if __has_include(<x>)\n#endif\n" + "\n" * 397,
        "tests/unit/a.cpp": SPDX + "#ifdef X\n#endif\n",
        "tools/a": PYTHON + "def f():\n" + "    g()\n" * 59,
        "README.md": "See docs/home/work, ${HOME}/work and https://example.org/home/work.\n",
    }
    assert check("sizes", files) == (0, [])
