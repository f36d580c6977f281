# SPDX-License-Identifier: Apache-2.0
# How the tests build the CUDA backend on doubles of its libraries; the Makefile includes it. It
# needs the toolkit's headers, and neither its libraries nor a GPU.

# Kernels are compiled by g++ and run as fibers; what they and the host code execute is counted.
emu       := $(build)/emulated
emu_obj   := $(cuda_cpp:%.cpp=$(emu)/%.o) $(cuda_cu:%.cu=$(emu)/%.o)
emu_of    = $(patsubst %.cpp,$(emu)/%.o,$(wildcard $(addprefix tests/cuda_emulation/,$(1))))
fibers    := $(call emu_of,fibers.cpp stacks.cpp)
doubles   := $(emu)/lib/libforegather_doubles.so
double_obj := $(call emu_of,doubles/*.cpp)
# Kernels alone, on a runtime that runs each at once; the device and the doubles, on the doubles.
kernel_test_obj := $(cuda_cu:%.cu=$(emu)/%.o) $(call emu_of,fibers_test.cpp inline_runtime.cpp plain_products.cpp ../cuda/kernels/*.cpp) $(fibers)
device_test_obj := $(call emu_of,../cuda/device/*.cpp runtime_test.cpp order_test.cpp matmul_test.cpp)
emu_flags = $(filter-out -O% -g,$(CXXFLAGS)) -O1 -g1 $(cuda_cppflags) -Itests/cuda_emulation/native -Itests/support
emu_libs  = --coverage -L$(emu)/lib -Wl,--disable-new-dtags,-rpath,$(abspath $(emu)/lib) -lforegather_doubles -lboost_context $(LDLIBS)
# What a profiler would inject into NVTX.
recorder  := $(emu)/lib/libforegather_ranges.so
emulated  := $(recorder) $(emu)/foregather $(emu)/kernel_tests $(emu)/device_tests $(emu)/nccl_tests $(emu)/device_bench
emulated-programs: $(emulated)
$(emu_obj): private emu_flags += --coverage
$(double_obj) $(call emu_of,range_recorder.cpp): private emu_flags += -fPIC
$(emu)/%.o: %.cpp $(build)/flags
	@mkdir -p $(@D)
	@echo "  EMU $<"
	@$(MPICXX) $(CPPFLAGS) $(emu_flags) -MMD -MP -c $< -o $@
$(emu)/%.o: %.cu $(build)/flags
	@mkdir -p $(@D)
	@echo "  EMU $<"
	@$(MPICXX) $(CPPFLAGS) $(emu_flags) -MMD -MP -Wno-unknown-pragmas -x c++ -c $< -o $@
$(doubles): $(double_obj)
	@mkdir -p $(@D)
	@echo "  LD  $@"
	@$(MPICXX) $(LDFLAGS) -shared $^ -o $@ -l:libopenblas.so.0 -lpthread
	@ln -sf $(@F) $(@D)/libnccl.so.2 && ln -sf $(@F) $(@D)/libcublasLt.so.$(cublas_major)
$(recorder): $(call emu_of,range_recorder.cpp)
	@mkdir -p $(@D)
	@echo "  LD  $@"
	@$(MPICXX) $(LDFLAGS) -shared $^ -o $@
$(emu)/foregather: $(build)/src/main.o $(emu_obj) $(fibers) $(archive) | $(doubles)
	@echo "  LD  $@"
	@$(MPICXX) $(LDFLAGS) $^ -o $@ $(emu_libs)
$(emu)/kernel_tests: $(kernel_test_obj) $(archive)
	@echo "  LD  $@"
	@$(MPICXX) $(LDFLAGS) $^ -o $@ --coverage -lboost_context $(LDLIBS) -lgtest -lgtest_main
$(emu)/device_tests: $(device_test_obj) $(emu_obj) $(fibers) $(archive) | $(doubles)
	@echo "  LD  $@"
	@$(MPICXX) $(LDFLAGS) $^ -o $@ $(emu_libs) -lgtest -lgtest_main
$(emu)/nccl_tests: $(call emu_of,nccl_test.cpp ../cuda/comm/*.cpp) $(call obj_of,$(support_src)) $(emu_obj) $(fibers) $(archive) | $(doubles)
	@echo "  LD  $@"
	@$(MPICXX) $(LDFLAGS) $^ -o $@ $(emu_libs) -lgtest
cublas_major := $(shell sed -n 's/.*define CUBLAS_VER_MAJOR *//p' $(cuda_include)/cublas_api.h 2>/dev/null)
