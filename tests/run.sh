#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests that `make` built, all or one kind of them, and counts them: the last line is the count.
# It decides neither what is tested nor how programs are built; `make check` and its kin call it.
#
#   tests/run.sh [all|unit|mpi|self|golden|tools|emulated|sanitized|asan|tsan|valgrind|fuzz|link|slurm]
#           all: without those that need minutes (emulated, sanitized, asan, tsan, valgrind, fuzz) or root (link, slurm)
#   BUILD   folder of the test programs (build/release-host)
#   RANKS   sizes to run the MPI tests at ("1 2 3 4"); with fewer than these, tests may skip at all of them
#   VENV    Python packages for golden, tools and link (.venv);   PYTHON  any Python 3, for counting (python3)
#   CUDA_MISSING  what of CUDA's headers was not found: emulated then skips
#   MUTATIONS, SEED  of each kind of input that is changed at random (300, 1): asan, fuzz
#   MPIRUN  (mpirun);   LIMIT  seconds that one program may take (600)
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1

build=${BUILD:-build/release-host}
every_size="1 2 3 4"
sizes=${RANKS:-$every_size}
venv=${VENV:-.venv}
python=${PYTHON:-python3}
mpirun=${MPIRUN:-mpirun}
limit=${LIMIT:-600}

# Asked before OMP_NUM_THREADS is set: nproc would answer with that.
cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)

# Ranks may outnumber cores, and may be root's.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_mpi_yield_when_idle=1
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 GTEST_COLOR=no
# Tests of refused allocations need what the program has without a sanitizer: no memory, not an abort.
export ASAN_OPTIONS=${ASAN_OPTIONS:-allocator_may_return_null=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-allocator_may_return_null=1}

logs=$(mktemp -d) || exit 1
failures=$logs/failures
trap 'rm -rf "$logs"' EXIT
passed=0 failed=0 skipped=0
by_the_clock=(tests/golden/test_prefetch.py tests/golden/test_training_prefetch.py tests/field/test_slow_steps.py
    tests/golden/test_bench_job.py tests/golden/test_plan_measured.py)
hurt=(tests/field/test_death.py tests/field/test_training_death.py tests/field/test_death_sizes.py
    tests/field/test_kill_campaign.py tests/field/test_resume.py)

# count FILE LIST FAILURES: prints "passed failed skipped" of a report of GoogleTest or pytest (both JUnit's XML),
# appends each test that ran or skipped to LIST, and a line on each that failed to FAILURES. A report that is absent
# or torn counts as nothing.
count() {
    "$python" - "$@" <<'END'
import sys
import xml.etree.ElementTree as xml

try:
    cases = list(xml.parse(sys.argv[1]).iter("testcase"))
except (OSError, xml.ParseError):
    cases = []
counts = {"ran": 0, "failed": 0, "skipped": 0}
with open(sys.argv[2], "a") as names, open(sys.argv[3], "a") as failures:
    for case in cases:
        why = [each for kind in ("failure", "error") for each in case.iter(kind)]
        if why:
            state = "failed"
            text = " ".join((why[0].get("message") or "").split())
            print(f"{case.get('classname')}.{case.get('name')}: {text[:300]}", file=failures)
        elif case.find("skipped") is not None or case.get("result") == "skipped":
            state = "skipped"
        elif case.get("status") == "notrun":
            continue
        else:
            state = "ran"
        counts[state] += 1
        print(state, f"{case.get('classname')}.{case.get('name')}", file=names)
print(counts["ran"], counts["failed"], counts["skipped"])
END
}

# part NAME COMMAND...: runs a command that reports to $logs/NAME.xml; one line if all is well, else its log.
part() {
    local name=$1 begin=$EPOCHREALTIME rc p f s tenths
    shift
    timeout -k 10 "$limit" "$@" > "$logs/$name.log" 2>&1 < /dev/null
    rc=$?
    read -r p f s < <(count "$logs/$name.xml" "$logs/tests" "$failures")
    if [ "$f" = 0 ] && { [ "$rc" != 0 ] || [ "$((p + s))" = 0 ]; }; then
        f=1
        echo "ended with status $rc, and its report has no failed test: it died, hung or ran nothing" \
            >> "$logs/$name.log"
    fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    tenths=$(((${EPOCHREALTIME/./} - ${begin/./}) / 100000))
    printf '%-5s %-18s %d passed, %d failed, %d skipped (%d.%d s)\n' \
        "$([ "$f" = 0 ] && echo ok || echo FAIL)" "$name" "$p" "$f" "$s" $((tenths / 10)) $((tenths % 10))
    [ "$f" = 0 ] || sed 's/^/    | /' "$logs/$name.log"
}

# at_size NAME RANKS PROGRAM [FILTER]: one GoogleTest program under mpirun.
at_size() {
    part "$1" "$mpirun" --oversubscribe --bind-to none -n "$2" "$3" --gtest_filter="${4:-*}" \
        --gtest_output="xml:$logs/$1.xml"
}

# nowhere LIST: the tests that skipped at every size. They count as failed, unless sizes were left out.
nowhere() {
    local test
    for test in $(awk '$1 == "skipped" { s[$2] = 1 } $1 != "skipped" { r[$2] = 1 }
                       END { for (t in s) if (!(t in r)) print t }' "$1" | sort); do
        if [ "$sizes" = "$every_size" ]; then
            failed=$((failed + 1))
            echo "FAIL  $test skipped at every size ($sizes): it tests nothing"
        else
            echo "note  $test skipped at every size asked for ($sizes)"
        fi
    done
}

at_all_sizes() { # NAME PROGRAM
    local n
    : > "$logs/tests"
    for n in $sizes; do
        at_size "$1-$n-ranks" "$n" "$2"
    done
    nowhere "$logs/tests"
}

# verdict WHAT RIGHT: counts a check of the harness itself; $logs/caught is its log.
verdict() {
    if [ "$2" = 1 ]; then
        passed=$((passed + 1))
        echo "ok    $1"
    else
        failed=$((failed + 1))
        echo "FAIL  $1"
        sed 's/^/    | /' "$logs/caught"
    fi
}

# caught PROGRAM RANKS SECONDS PATTERN: the program must count as failed within so many seconds, with PATTERN
# in exactly one line of what it printed, and no second line of foregather's own.
caught() {
    local begin=$SECONDS right=0
    (
        failed=0 failures=/dev/null
        at_size "$1" "$2" "$build/self_$1"
        [ "$failed" != 0 ]
    ) > "$logs/caught" 2>&1 && right=1
    [ "$(grep -cE -e "$4" "$logs/caught")" = 1 ] || right=0
    [ "$(grep -c 'foregather: ' "$logs/caught")" -le 1 ] || right=0
    [ $((SECONDS - begin)) -le "$3" ] || right=0
    verdict "self $1 at $2 ranks is caught within $((SECONDS - begin)) of $3 s" "$right"
}

self() {
    local right
    export FOREGATHER_TEST_TIMEOUT=3
    caught fails_on_one_rank 1 20 'this failure must be reported$'
    caught fails_on_one_rank 3 20 'rank 2 of 3:$'
    caught throws_on_one_rank 2 20 'this exception must be reported'
    caught hangs 2 20 'watchdog: rank 1 of 2 has been in SelfTest.one_rank_never_arrives'
    caught leaves_early 3 20 'watchdog: rank 1 of 3 has been at the end of SelfTest.one_rank_leaves'
    caught dies 2 20 ' RUN .*SelfTest.one_rank_ends_in_the_middle'
    export FOREGATHER_TEST_TIMEOUT=30
    caught missing_from_a_gather 3 15 'foregather: rank 0 .*gather of layer\.1.*; rank 1 \([^,]*\) did not arrive'
    caught missing_from_a_reduction 3 15 'foregather: rank 0 .*reduction of layer\.0.*; rank 1 \([^,]*\) did not arrive'
    caught missing_from_a_shared_reduction 3 15 'foregather: rank .*reduction of layer\.0.*; rank 1 \([^,]*\) did not arrive'
    caught missing_from_a_group 4 15 'foregather: rank 2 .*gather of layer\.1.*; rank 3 \([^,]*\) did not arrive'
    caught missing_from_a_board 3 15 'foregather: rank .*layer\.1.*; rank 1 \([^,]*\) did not load its part'
    FOREGATHER_SELF_MISSING=3 caught missing_from_a_node 4 15 \
        'foregather: rank 2 .*gather of layer\.1.*; rank 3 \([^,]*\) did not free its slot'
    FOREGATHER_SELF_MISSING=2 caught missing_from_a_node 4 15 \
        'foregather: rank 0 .*gather of layer\.1.*; rank 2 \([^,]*\) did not arrive'
    caught stands_still 2 15 'foregather: rank 1 .*writing run/scores\.h5 has moved no byte .* after 7 bytes'
    caught never_comes 3 20 \
        'foregather: rank 2 .*rank 1 \([^,]*\) did not arrive within . s .* to gather a number .* step 7, storing figures; nothing has moved'
    unset FOREGATHER_TEST_TIMEOUT

    (sizes=$every_size && at_all_sizes skips_everywhere "$build/self_skips_everywhere") > "$logs/caught" 2>&1
    right=$(grep -c '^FAIL  SelfTest.needs_more_ranks_than_any_run_has skipped at every size' "$logs/caught")
    verdict "self skips_everywhere: a test that ran nowhere is caught" "$right"
    BUILD="$logs/none" "$PWD/tests/run.sh" unit > "$logs/caught" 2>&1
    [ $? = 1 ] && [ "$(tail -n 1 "$logs/caught")" = "0 passed, 1 failed, 0 skipped" ] && right=1 || right=0
    verdict "self no programs: a run without tests fails" "$right"
}

python_tests() { # NAME FOLDER...
    local name=$1
    shift
    part "$name" "$venv/bin/python" -m pytest -q -rs "$@" --junitxml="$logs/$name.xml"
    sed -nE 's/^SKIPPED \[[0-9]+\] [^ ]*: /      skipped: /p' "$logs/$name.log" | sort -u
}

# The CUDA backend on doubles of its libraries: kernels, the doubles themselves, the whole program; then what of
# the backend's code all of these together have executed.
on_doubles() {
    if [ -n "${CUDA_MISSING-}" ]; then
        skipped=$((skipped + 1))
        echo "skip  $1: not found: $CUDA_MISSING"
    else
        "$1"
    fi
}

emulated() {
    local emu=$build/emulated right
    find "$emu" -name '*.gcda' -delete
    part kernels "$emu/kernel_tests" --gtest_output="xml:$logs/kernels.xml"
    part device "$emu/device_tests" --gtest_output="xml:$logs/device.xml"
    at_all_sizes nccl "$emu/nccl_tests"
    limit=${LIMIT:-3600} FOREGATHER=$PWD/$emu/foregather python_tests emulated tests/emulated \
        -n $((cores + 1)) --dist worksteal
    sed -nE 's/^(noticed: .{0,150}).*/      \1/p' "$logs/emulated.log"
    "$venv/bin/python" tests/emulated/coverage.py "$emu" > "$logs/caught" 2>&1 && right=1 || right=0
    verdict "emulated: what the CUDA backend's code has executed: $(tail -n 1 "$logs/caught")" "$right"
}

# The same programs built with a sanitizer: what kernels and host code touch. MPI leaks by itself.
sanitized() {
    local emu=$build/emulated
    export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0
    part kernels "$emu/kernel_tests" --gtest_output="xml:$logs/kernels.xml"
    part device "$emu/device_tests" --gtest_output="xml:$logs/device.xml"
    at_size nccl 2 "$emu/nccl_tests"
    limit=${LIMIT:-3600} FOREGATHER=$PWD/$emu/foregather python_tests sanitized tests/emulated/test_golden_models.py \
        -k "(every_depth and 3) or (offload and qwen2) or bf16_is_near" -n "$cores" --dist load
}

# Decks and input files, changed. FUZZ_INPUTS: what is changed, and what decks are given.
fuzz() {
    mkdir "$logs/inputs"
    "$venv/bin/python" tests/fuzz/inputs.py "$logs/inputs"
    limit=${LIMIT:-3600} FUZZ_INPUTS=$logs/inputs FOREGATHER=$PWD/$build/foregather TMPDIR=$logs \
        ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0:max_allocation_size_mb=4096 \
        part fuzz "$build/fuzz_tests" --gtest_output="xml:$logs/fuzz.xml"
    sed -nE 's/^(noticed: .*)/      \1/p' "$logs/fuzz.log"
}

# Host programs under a sanitizer: tests with ranks, and runs of the whole program.
with_ranks() { # FILTER
    at_size mpi-2-ranks 2 "$build/mpi_tests" "$1"
    at_size mpi-3-ranks 3 "$build/mpi_tests" "$1"
    FOREGATHER=$PWD/$build/foregather python_tests runs tests/sanitized
}

asan() {
    export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0
    part unit "$build/unit_tests" --gtest_output="xml:$logs/unit.xml"
    # Without those that are judged by the clock, or wait for it: left out for their time.
    with_ranks '-DepthChoice*:*AloneTest.*:*Delays*:*no_delay*:PrefetcherOverlap*'
    fuzz
}

# Threads of one process. What two processes do to a window that they share, the sanitizer does not see.
tsan() {
    # Older runtimes stop where the kernel scatters mappings widely.
    if [ -z "${PLACED-}" ] && setarch -R true 2> /dev/null; then
        rm -rf "$logs"
        PLACED=1 exec setarch -R "$PWD/tests/run.sh" tsan
    fi
    export TSAN_OPTIONS=$TSAN_OPTIONS:suppressions=$PWD/tests/sanitized/tsan.supp:ignore_noninstrumented_modules=1
    part device "$build/unit_device" --gtest_output="xml:$logs/device.xml"
    # A selection, for its time: other suites of the prefetcher use threads too and are not tried here.
    with_ranks 'WatchTest.*:Checkpoints*:InPlace*:Shared*:PrefetcherLimits*:TrainingTest.*'
}

valgrind() {
    if ! type -P valgrind > /dev/null; then
        skipped=$((skipped + 1))
        echo "skip  valgrind: not found: as root, make check-valgrind installs it"
        return
    fi
    local known=/usr/share/openmpi/openmpi-valgrind.supp right=0 options=(--quiet "--log-file=$logs/said-%p")
    [ ! -e $known ] || options+=("--suppressions=$known")
    # Without those that kill writers by the clock.
    part valgrind valgrind "${options[@]}" "$build/unit_io" --gtest_filter='-*Killed*:Completion*' \
        --gtest_output="xml:$logs/valgrind.xml"
    cat "$logs"/said-* > "$logs/caught" && [ ! -s "$logs/caught" ] && right=1
    verdict "valgrind: no invalid access, no value from nowhere" "$right"
}

# added FILE: prints what a run of its own has printed, and adds its last line to the counts.
added() {
    local p f s
    sed '$d' "$1"
    read -r p _ f _ s _ < <(tail -n 1 "$1")
    if ! [[ "$p $f $s" =~ ^[0-9]+\ [0-9]+\ [0-9]+$ ]]; then
        p=0 f=1 s=0
        echo "${1##*/}: it ended without a count" >> "$failures"
    fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

run() {
    case $1 in
    unit) part unit "$build/unit_tests" --gtest_output="xml:$logs/unit.xml" ;;
    mpi) at_all_sizes mpi "$build/mpi_tests" ;;
    self) self ;;
    golden)
        # What is judged by the clock runs alone. Jobs that are hurt in their midst mostly wait for time limits: some
        # at a time. All else runs on three processes more than there are cores, since launchers wait as well.
        limit=${LIMIT:-3600}
        python_tests golden tests/golden tests/field -n $((cores + 3)) --dist loadfile \
            "${by_the_clock[@]/#/--ignore=}" "${hurt[@]/#/--ignore=}"
        python_tests hurt "${hurt[@]}" -n 2 --dist loadfile
        python_tests clock "${by_the_clock[@]}"
        ;;
    tools) limit=${LIMIT:-3600} python_tests tools tests/tools -n "$cores" --dist loadfile ;;
    emulated | sanitized) on_doubles "$1" ;;
    asan | tsan | valgrind | fuzz) "$1" ;;
    link) python_tests link tests/link ;;
    slurm) python_tests slurm tests/slurm ;;
    all)
        # Tests of the harness mostly wait, and unit tests take one core.
        "$PWD/tests/run.sh" self > "$logs/self" 2>&1 &
        self=$!
        run unit
        wait "$self"
        added "$logs/self"
        for kind in mpi tools golden; do run "$kind"; done
        ;;
    *)
        echo "usage: tests/run.sh [all|unit|mpi|self|golden|tools|emulated|sanitized|asan|tsan|valgrind|fuzz|link|slurm]" >&2
        exit 2
        ;;
    esac
}

run "${1:-all}"
[ ! -s "$failures" ] || sed 's/^/FAIL  /' "$failures"
echo "$passed passed, $failed failed, $skipped skipped"
# That no test ran is a failure, but where hosts or a Slurm cannot be made, or CUDA's headers are not there, it is said.
[ "$failed" = 0 ] && { [ "$passed" -gt 0 ] || { [[ ${1:-all} =~ ^(link|slurm|emulated|sanitized|valgrind)$ ]] && [ "$skipped" -gt 0 ]; }; }
