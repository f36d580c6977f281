# SPDX-License-Identifier: Apache-2.0
# The device bench: what tests/device/run.sh measures on a GPU, and the same program on the doubles
# that the tests of the script run. The Makefile includes it after tests/cuda_emulation/rules.mk.

bench_cpp := $(wildcard tests/device/*.cpp)
bench_cu  := $(wildcard tests/device/*.cu)
bench_obj := $(bench_cpp:%.cpp=$(build)/%.o) $(bench_cu:%.cu=$(build)/%.o)
emu_bench_obj := $(bench_cpp:%.cpp=$(emu)/%.o) $(bench_cu:%.cu=$(emu)/%.o)
bench_program := $(if $(filter 1,$(cuda_built)),$(build)/device_bench)
all_obj += $(if $(bench_program),$(bench_obj))

$(bench_cpp:%.cpp=$(build)/%.o): private CPPFLAGS += $(cuda_cppflags)
$(bench_cu:%.cu=$(build)/%.o): private NVCCFLAGS += -Itests/device/native
$(emu_bench_obj): private emu_flags += -Itests/device/emulated
$(build)/device_bench: $(bench_obj) $(lib)
	@echo "  LD  $@"
	@$(MPICXX) $(LDFLAGS) $^ -o $@ $(cuda_libs) $(LDLIBS)
$(emu)/device_bench: $(emu_bench_obj) $(emu_obj) $(fibers) $(archive) | $(doubles)
	@echo "  LD  $@"
	@$(MPICXX) $(LDFLAGS) $^ -o $@ $(emu_libs)
.PHONY: device_bench
device_bench: $(if $(bench_program),$(bench_program),FORCE) ## the program behind tests/device/run.sh (needs the CUDA backend)
	$(if $(bench_program),@:,@echo "device_bench: the CUDA backend is not built: $(cuda_told)" >&2; exit 1)
