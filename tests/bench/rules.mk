# SPDX-License-Identifier: Apache-2.0
# Programs that measure one part of the host backend; `make bench` runs them. The Makefile includes it.

backward_bench := $(build)/backward_products
all_obj += $(build)/tests/bench/backward_products.o
$(backward_bench): $(build)/tests/bench/backward_products.o $(lib)
	$(MPICXX) $(LDFLAGS) $^ -o $@ $(LDLIBS)
