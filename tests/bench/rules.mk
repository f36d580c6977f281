# SPDX-License-Identifier: Apache-2.0
# Programs that measure one part of the host backend; `make bench` runs them. The Makefile includes it.

backward_bench := $(build)/backward_products
timeline_cost  := $(build)/timeline_cost
all_obj += $(build)/tests/bench/backward_products.o $(build)/tests/bench/timeline_cost.o
$(backward_bench): $(build)/tests/bench/backward_products.o $(lib)
	@echo "  LD  $@"
	@$(MPICXX) $(LDFLAGS) $^ -o $@ $(LDLIBS)
$(timeline_cost): $(build)/tests/bench/timeline_cost.o $(lib)
	@echo "  LD  $@"
	@$(MPICXX) $(LDFLAGS) $^ -o $@ $(cuda_libs) $(LDLIBS)
