# SPDX-License-Identifier: Apache-2.0
# The program that changes decks and input files at random and reads them. The Makefile includes it.

fuzz_src := $(wildcard tests/fuzz/*.cpp)
fuzz_tests := $(build)/fuzz_tests
all_obj += $(call obj_of,$(fuzz_src))
test_obj += $(call obj_of,$(fuzz_src))
$(fuzz_tests): $(call obj_of,$(fuzz_src)) $(lib)
	@echo "  LD  $@"
	@$(MPICXX) $(LDFLAGS) $^ -o $@ $(cuda_libs) $(LDLIBS) -lgtest -lgtest_main
