# SPDX-License-Identifier: Apache-2.0
# foregather: build, run, check. `make help` lists the targets; settings may also go to local.mk.

# ---- settings (VAR=value on the command line, or in local.mk) -----------------------------------
CUDA       ?= auto#       auto: build the CUDA backend if it can be built; 0: never; 1: or stop
CUDA_HOME  ?= /usr/local/cuda# the CUDA toolkit
NCCL_HOME  ?= $(CUDA_HOME)# NCCL, if it is not in the compiler's own folders
CUDA_ARCHS ?= 80 90 100#  architectures to compile for; the last one is kept as PTX too, for later ones
MODE       ?= release#    release, debug, asan, tsan
NP         ?= 2#          ranks of `make run` and `make check-mpi`
DECK       ?= inputs/score-smollm2.deck#  deck of `make run-deck`
MPICXX     ?= mpicxx
MPIRUN     ?= mpirun
HDF5_MODULE ?= hdf5-openmpi# pkg-config's name of the parallel HDF5
PYTHON     ?= python3#    makes the virtual environment
VENV       ?= .venv#      the tools' Python packages
PREFIX     ?= /usr/local
WORK       ?= run#        where `make run` puts weights, tokens and results
-include local.mk

# ---- detection ----------------------------------------------------------------------------------
hdf5_cflags := $(shell pkg-config --cflags $(HDF5_MODULE) 2>/dev/null)
hdf5_libs   := $(shell pkg-config --libs $(HDF5_MODULE) 2>/dev/null)
# A CUDA backend is built with nvcc and the headers of cuBLASLt, NVTX and NCCL; the libraries are opened at run time.
nvcc := $(firstword $(wildcard $(CUDA_HOME)/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
cuda_include := $(patsubst %/bin/nvcc,%/include,$(realpath $(nvcc)))
nccl_include := $(patsubst %/nccl.h,%,$(firstword $(wildcard $(addsuffix /nccl.h,$(addsuffix /include,$(NCCL_HOME)) $(cuda_include) /usr/local/include /usr/include))))
cuda_missing := $(strip $(if $(nvcc),,nvcc) $(foreach h,cublasLt.h nvtx3/nvToolsExt.h,$(if $(wildcard $(cuda_include)/$(h)),,$(h))) \
                $(if $(nccl_include),$(shell grep -q commName $(nccl_include)/nccl.h || echo 'nccl.h of NCCL 2.26 or later'),nccl.h))
$(if $(filter auto 0 1,$(CUDA)),,$(error CUDA=$(CUDA): one of auto, 0, 1))
# A folder that was named and is not there is a mistake, not a reason to look elsewhere.
$(foreach v,CUDA_HOME NCCL_HOME,$(if $(filter command environment,$(firstword $(origin $(v)))),$(if $(wildcard $($(v))),,$(if $(filter 0,$(CUDA)),,$(error $(v)=$($(v)): no such folder)))))
ifeq ($(CUDA)$(if $(cuda_missing),-),1-)
  $(error CUDA=1, but not found: $(cuda_missing). Install the CUDA toolkit and NCCL, or say where they are: CUDA_HOME=$(CUDA_HOME) NCCL_HOME=$(NCCL_HOME))
endif
cuda_built := $(if $(filter-out 0,$(CUDA)),$(if $(cuda_missing),0,1),0)
backend_dir := $(if $(filter 1,$(cuda_built)),cuda,host)
cuda_told := $(if $(filter 1,$(cuda_built)),host and cuda backends for sm $(CUDA_ARCHS),host backend$(if $(filter 0,$(CUDA)),, only: not found: $(cuda_missing)))

# ---- flags --------------------------------------------------------------------------------------
build := build/$(MODE)-$(backend_dir)
opt_release := -O3 -g
opt_debug   := -O0 -g
# -g1: lines for their reports, in half of the time that variables take.
opt_asan    := -O1 -g1 -fsanitize=address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=undefined
opt_tsan    := -O1 -g1 -fsanitize=thread
mode_flags  := $(opt_$(MODE))
$(if $(mode_flags),,$(error MODE=$(MODE): one of release, debug, asan, tsan))
CPPFLAGS += -Iinclude -I$(build) -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX $(patsubst -I%,-isystem %,$(hdf5_cflags))
# -ffp-contract=off: our kernels compute the same bits on every x86-64 processor.
# -Wno-restrict: g++ 12 sees overlaps in `"text" + std::string` that are not there (gcc bug 105651).
CXXFLAGS += -std=c++20 $(mode_flags) -ffp-contract=off -fno-math-errno -Wall -Wextra -Wshadow -Wconversion -Wno-restrict -Werror
LDFLAGS  += $(filter -fsanitize%,$(mode_flags))
# CUDA code: g++ compiles what runs on the host, nvcc the kernels alone.
cuda_cppflags = -isystem $(cuda_include) -isystem $(nccl_include)
gencode   = $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
            -gencode arch=compute_$(lastword $(CUDA_ARCHS)),code=compute_$(lastword $(CUDA_ARCHS))
NVCCFLAGS += -std=c++20 -O3 -g -lineinfo -ccbin g++ -Werror all-warnings -Xcompiler -Wall,-Wextra,-Werror $(gencode)
LDLIBS   += $(patsubst -lhdf5,-lhdf5_hl -lhdf5,$(hdf5_libs)) -lboost_program_options -lcrypto -ldl -lpthread

# ---- sources: a room is a folder, nothing to edit for a new file --------------------------------
comma   := ,
rooms   := base deck mesh device comm kernels backend io shard schedule model job
lib_src := $(filter-out src/backend/cuda.cpp src/backend/cuda_absent.cpp, \
             $(foreach r,$(rooms),$(wildcard src/$(r)/*.cpp src/$(r)/host/*.cpp)))
lib_obj := $(lib_src:%.cpp=$(build)/%.o)
cuda_cpp := src/backend/cuda.cpp $(wildcard src/*/cuda/*.cpp)
cuda_cu  := $(wildcard src/*/cuda/*.cu)
# Either these or their absence is linked to the library.
cuda_obj := $(if $(filter 1,$(cuda_built)),$(cuda_cpp:%.cpp=$(build)/%.o) $(cuda_cu:%.cu=$(build)/%.o),$(build)/src/backend/cuda_absent.o)
cuda_libs := $(if $(filter 1,$(cuda_built)),-L$(cuda_include)/../lib64 -Wl$(comma)-rpath$(comma)$(realpath $(cuda_include)/../lib64):$(nccl_include:%/include=%/lib) -lcudart_static -lrt)
archive := $(build)/libforegather.a
lib     := $(cuda_obj) $(archive)
program := $(build)/foregather
unit_src := $(wildcard tests/unit/*/*.cpp)
mpi_src  := $(wildcard tests/mpi/*/*.cpp)
self_src := $(wildcard tests/self/*.cpp)
support_src := $(wildcard tests/support/*.cpp)
obj_of = $(patsubst %.cpp,$(build)/%.o,$(1))
unit_tests := $(build)/unit_tests
mpi_tests  := $(build)/mpi_tests
room_tests := $(build)/unit_device $(build)/unit_io#  one room's alone, for tools under which all take too long
self_tests := $(patsubst tests/self/%.cpp,$(build)/self_%,$(self_src))
all_obj := $(lib_obj) $(cuda_obj) $(call obj_of,src/main.cpp $(unit_src) $(mpi_src) $(self_src) $(support_src))
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1

# ---- targets ------------------------------------------------------------------------------------
.DEFAULT_GOAL := all
test_env = BUILD="$(build)" VENV="$(VENV)" MPIRUN="$(MPIRUN)"
.PHONY: all run run-deck demo-link train-tiny check check-unit check-mpi check-self check-golden check-tools check-emulated check-sanitized check-asan check-tsan check-valgrind fuzz check-link check-slurm emulated-programs asan-programs tsan-programs lint bench deps install clean help FORCE
.DELETE_ON_ERROR:

all: foregather ## build the program (./foregather)
foregather: $(program)
	@ln -sf $(program) $@
	@echo "foregather: $(cuda_told), MODE=$(MODE)"

$(program): $(build)/src/main.o $(lib)
	@echo "  LD  $@"
	@$(MPICXX) $(LDFLAGS) $^ -o $@ $(cuda_libs) $(LDLIBS)
$(archive): $(lib_obj)
	@rm -f $@ && ar rcs $@ $^
# Tests compute nothing heavy: not optimized, GoogleTest's headers compiled once, they build fast.
test_pch := $(build)/tests/pch.hpp
test_obj := $(call obj_of,$(unit_src) $(mpi_src) $(self_src) $(support_src))
$(test_pch).gch: tests/support/pch.hpp $(build)/flags
	@mkdir -p $(@D)
	@cp $< $(test_pch)
	@$(MPICXX) $(CPPFLAGS) $(CXXFLAGS) -O0 -g1 -x c++-header -c $< -o $@
# private: $(build)/flags, on which they depend, tells the flags of all.
$(test_obj): private CXXFLAGS += -O0 -g1 -include $(test_pch)
$(test_obj): $(test_pch).gch
$(cuda_cpp:%.cpp=$(build)/%.o): private CPPFLAGS += $(cuda_cppflags)
$(build)/%.o: %.cpp $(build)/flags
	@mkdir -p $(@D)
	@echo "  CXX $<"
	@$(MPICXX) $(CPPFLAGS) $(CXXFLAGS) -MMD -MP -c $< -o $@
$(build)/%.o: %.cu $(build)/flags
	@mkdir -p $(@D)
	@echo "  NVCC $<"
	@$(nvcc) $(NVCCFLAGS) -Iinclude -Isrc/kernels/cuda/native -MMD -MP -c $< -o $@
$(unit_tests): $(call obj_of,$(unit_src)) $(lib)
	@echo "  LD  $@"
	@$(MPICXX) $(LDFLAGS) $^ -o $@ $(cuda_libs) $(LDLIBS) -lgtest -lgtest_main
.SECONDEXPANSION:
$(room_tests): $(build)/unit_%: $$(call obj_of,$$(wildcard tests/unit/$$*/*.cpp)) $(lib)
	@echo "  LD  $@"
	@$(MPICXX) $(LDFLAGS) $^ -o $@ $(cuda_libs) $(LDLIBS) -lgtest -lgtest_main
$(mpi_tests): $(call obj_of,$(mpi_src) $(support_src)) $(lib)
	@echo "  LD  $@"
	@$(MPICXX) $(LDFLAGS) $^ -o $@ $(cuda_libs) $(LDLIBS) -lgtest
$(build)/self_%: $(build)/tests/self/%.o $(call obj_of,$(support_src)) $(lib)
	@echo "  LD  $@"
	@$(MPICXX) $(LDFLAGS) $^ -o $@ $(cuda_libs) $(LDLIBS) -lgtest

include tests/cuda_emulation/rules.mk
include tests/device/rules.mk
include tests/bench/rules.mk
include tests/fuzz/rules.mk

# Flags, compiler and git revision are compiled in; objects are rebuilt when they differ.
flags_text = $(MPICXX) $(CPPFLAGS) $(CXXFLAGS) $(if $(filter 1,$(cuda_built)),$(nvcc) $(NVCCFLAGS) $(cuda_cppflags))
$(build)/flags: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(flags_text)' | cmp -s - $@ || printf '%s\n' '$(flags_text)' > $@
$(build)/generated/config_law.inc: tools/foregather_tools/config_law.json
	@mkdir -p $(@D)
	@{ printf 'R"json('; cat $<; printf ')json"\n'; } > $@
$(build)/src/model/config.o: $(build)/generated/config_law.inc
$(build)/generated/cuda_archs.inc: $(build)/flags
	@mkdir -p $(@D)
	@echo '$(CUDA_ARCHS)' | sed 's/[^0-9 ]//g; s/ *$$//; s/  */, /g' > $@
$(build)/src/device/cuda/device.o $(build)/emulated/src/device/cuda/device.o: $(build)/generated/cuda_archs.inc
$(build)/generated/revision.inc: FORCE
	@mkdir -p $(@D)
	@{ printf '"%s"\n' "$$(git describe --always --dirty 2>/dev/null || echo unknown)"; } > $@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
$(build)/src/job/version.o: $(build)/generated/revision.inc

# What is missing is installed first; only then can flags be asked for, so a second make builds.
submake = $(MAKE) --no-print-directory $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))
run: deps ## score SmolLM2-135M on 2 ranks, then show the prefetch at depths 0 and 1
	@$(submake) all
	@tools/run_demo "$(MPIRUN)" "$(VENV)" "$(WORK)" "$(NP)"
demo-link: ## two hosts on this machine over a link, at depths 0 and 1, as one picture (as root)
	@tools/demo_link --probe
	@$(submake) deps && $(submake) all
	@tools/demo_link "$(MPIRUN)" "$(VENV)" "$(WORK)"
train-tiny: deps ## train a small Llama from nothing on NP= ranks, in about two minutes
	@$(submake) all
	@tools/tiny_inputs "$(VENV)" "$(WORK)/tiny-train.h5" "$(WORK)/tiny-held-out.h5"
	$(MPIRUN) --oversubscribe --bind-to none -n $(NP) ./foregather inputs/train-tiny.deck \
	    --data.tokens=$(WORK)/tiny-train.h5 --train.evaluate=$(WORK)/tiny-held-out.h5 \
	    --checkpoint.directory=$(WORK)/train-tiny --output.file=$(WORK)/train-tiny.h5
run-deck: deps ## run DECK= on NP= ranks
	@$(submake) all
	$(MPIRUN) --oversubscribe --bind-to none -n $(NP) ./foregather $(DECK)
check: deps ## every host test; the last line counts them
	@$(submake) all $(unit_tests) $(mpi_tests) $(self_tests)
	@$(test_env) tests/run.sh all
check-unit: deps ## unit tests, no MPI
	@$(submake) $(unit_tests)
	@$(test_env) tests/run.sh unit
check-mpi: deps ## MPI tests at NP= ranks
	@$(submake) $(mpi_tests)
	@$(test_env) RANKS="$(NP)" tests/run.sh mpi
check-self: deps ## tests of the test harness itself
	@$(submake) $(self_tests)
	@$(test_env) tests/run.sh self
check-golden: deps ## the real program on golden models and field cases
	@$(submake) all
	@$(test_env) tests/run.sh golden
check-tools: deps ## the Python tools
	@$(test_env) tests/run.sh tools
check-emulated: deps ## the CUDA backend on doubles of CUDA, NCCL and cuBLASLt: no GPU, but the toolkit's headers
	@$(submake) all $(if $(cuda_missing),,emulated-programs)
	@$(test_env) CUDA_MISSING="$(cuda_missing)" tests/run.sh emulated
check-sanitized: deps ## kernels, device and some golden models of check-emulated, under the address sanitizer
	@$(if $(cuda_missing),,$(submake) CUDA=0 MODE=asan emulated-programs)
	@$(test_env) BUILD=build/asan-host CUDA_MISSING="$(cuda_missing)" tests/run.sh sanitized
asan-programs: $(program) $(unit_tests) $(mpi_tests) $(fuzz_tests)
tsan-programs: $(program) $(build)/unit_device $(mpi_tests)
check-asan: deps ## host tests, runs and changed inputs (MUTATIONS=300 of each kind) under the address sanitizer
	@$(submake) CUDA=0 MODE=asan asan-programs
	@$(test_env) BUILD=build/asan-host tests/run.sh asan
check-tsan: deps ## host streams, transports and runs under the thread sanitizer
	@$(submake) CUDA=0 MODE=tsan tsan-programs
	@$(test_env) BUILD=build/tsan-host tests/run.sh tsan
check-valgrind: export ALSO = $(if $(filter 0,$(shell id -u)),valgrind)
check-valgrind: deps ## unit tests of files under valgrind
	@$(submake) $(build)/unit_io
	@$(test_env) tests/run.sh valgrind
fuzz: deps ## MUTATIONS=5000 changed decks, token files and weights files, SEED=1, under the address sanitizer
	@$(submake) CUDA=0 MODE=asan build/asan-host/foregather build/asan-host/fuzz_tests
	@$(test_env) MUTATIONS="$(or $(MUTATIONS),5000)" BUILD=build/asan-host tests/run.sh fuzz
check-link: deps ## two hosts over a slow link, on this machine (as root)
	@$(submake) all
	@$(test_env) tests/run.sh link
check-slurm: export ALSO = $(if $(filter 0,$(shell id -u)),slurm)
check-slurm: deps ## the scripts of jobs/ under a Slurm of this machine's own (as root)
	@$(submake) all
	@$(test_env) tests/run.sh slurm
bench: deps ## speed, memory, load and the prefetch's worth on this machine (no peers)
	@$(submake) all
	@tools/demo_inputs "$(VENV)" "$(WORK)/smollm2-135m.h5" "$(WORK)/licences.h5"
	@"$(VENV)/bin/python" tools/bench "$(WORK)/smollm2-135m.h5" "$(WORK)/licences.h5" --ranks "$(NP)"
	@$(submake) $(backward_bench) $(timeline_cost) && $(backward_bench)
	@$(MPIRUN) --oversubscribe --bind-to none -n $(NP) $(timeline_cost)
lint: ## format, rooms, pairs, headers alone, sizes
	@CUDA_MISSING="$(cuda_missing)" tools/lint "$(MPICXX) $(CPPFLAGS) $(if $(cuda_missing),,$(cuda_cppflags)) $(CXXFLAGS)"
deps: ## install what is missing: Debian packages, Python packages into VENV
	@MPICXX="$(MPICXX)" MPIRUN="$(MPIRUN)" HDF5_MODULE="$(HDF5_MODULE)" tools/install_deps "$(PYTHON)" "$(VENV)"
share := $(DESTDIR)$(PREFIX)/share
install: all ## copy program, tools, decks, batch scripts and manual page below PREFIX
	install -D -m 755 $(program) "$(DESTDIR)$(PREFIX)/bin/foregather"
	install -d "$(share)/foregather" "$(share)/man/man1"
	tar c --exclude __pycache__ --exclude peers tools inputs jobs README.md LICENSE | tar x --no-same-owner -C "$(share)/foregather"
	ln -sf ../../bin/foregather "$(share)/foregather/foregather"
	tools/man_page $(program) > "$(share)/man/man1/foregather.1"
clean: ## remove build products
	rm -rf build foregather
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 18
	@echo "Settings: CUDA CUDA_HOME NCCL_HOME CUDA_ARCHS MODE NP DECK MPICXX MPIRUN PYTHON VENV PREFIX WORK (make print-VAR shows one)"
print-%:
	@echo '$* = $($*) ($(origin $*))'

-include $(all_obj:.o=.d) $(shell find $(emu) -name '*.d' 2>/dev/null)
