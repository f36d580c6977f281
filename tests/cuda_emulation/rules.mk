# SPDX-License-Identifier: Apache-2.0
# How the tests build the CUDA backend on doubles of its libraries; the Makefile includes it. It
# needs the toolkit's headers, and neither its libraries nor a GPU.

# Kernels are compiled by g++ and run as fibers; what they and the host code execute is counted.
emu       := $(build)/emulated
emu_obj   := $(cuda_cpp:%.cpp=$(emu)/%.o) $(cuda_cu:%.cu=$(emu)/%.o)
fibers    := $(patsubst %.cpp,$(emu)/%.o,$(filter-out %_test.cpp %/inline_runtime.cpp,$(wildcard tests/cuda_emulation/*.cpp)))
doubles   := $(emu)/lib/libforegather_doubles.so
double_obj := $(patsubst %.cpp,$(emu)/%.o,$(wildcard tests/cuda_emulation/doubles/*.cpp))
emu_tests_of = $(patsubst %.cpp,$(emu)/%.o,$(wildcard $(1)))
emu_flags = $(filter-out -O%,$(CXXFLAGS)) -O1 $(cuda_cppflags) -Itests/cuda_emulation/native -Itests -I.
emu_libs  = --coverage -L$(emu)/lib -Wl,--disable-new-dtags,-rpath,$(abspath $(emu)/lib) -lforegather_doubles -lboost_context $(LDLIBS)
emulated  := $(emu)/foregather $(emu)/kernel_tests $(emu)/double_tests
$(emu_obj): private emu_flags += --coverage
$(double_obj): private emu_flags += -fPIC
$(emu)/%.o: %.cpp $(build)/flags
	@mkdir -p $(@D)
	@echo "  EMU $<"
	@$(MPICXX) $(CPPFLAGS) $(emu_flags) -MMD -MP -c $< -o $@
$(emu)/%.o: %.cu $(build)/flags
	@mkdir -p $(@D)
	@echo "  EMU $<"
	@$(MPICXX) $(CPPFLAGS) $(emu_flags) -MMD -MP -x c++ -c $< -o $@
$(doubles): $(double_obj)
	@mkdir -p $(@D)
	$(MPICXX) $(LDFLAGS) -shared $^ -o $@ -lopenblas -lpthread
	@ln -sf $(@F) $(@D)/libnccl.so.2 && ln -sf $(@F) $(@D)/libcublasLt.so.$(cublas_major)
$(emu)/foregather: $(build)/src/main.o $(emu_obj) $(fibers) $(archive) | $(doubles)
	$(MPICXX) $(LDFLAGS) $^ -o $@ $(emu_libs)
$(emu)/kernel_tests: $(call emu_tests_of,tests/cuda/*/*.cpp) $(emu)/tests/cuda_emulation/fibers_test.o $(emu_obj) $(fibers) $(archive) | $(doubles)
	$(MPICXX) $(LDFLAGS) $^ -o $@ $(emu_libs) -lgtest -lgtest_main
$(emu)/double_tests: $(call emu_tests_of,tests/cuda_emulation/doubles_tests/*.cpp) $(call obj_of,$(support_src)) $(archive) | $(doubles)
	$(MPICXX) $(LDFLAGS) $^ -o $@ $(emu_libs) -lgtest
cublas_major := $(shell sed -n 's/.*define CUBLAS_VER_MAJOR *//p' $(cuda_include)/cublas_api.h 2>/dev/null)
