// SPDX-License-Identifier: Apache-2.0
// Reading off.
#include "measure.hpp"

namespace foregather::job {

void measure(RankFigures& figures, const Measured& run) {
    const schedule::PrefetchFigures prefetch = run.source.figures();
    take(figures, prefetch);
    figures.issued = run.source.issued();
    figures.waited = run.source.waited();
    figures.freed = run.source.freed();
    figures.bytes_copied_up = run.offload ? run.source.own_bytes().count : 0;
    figures.threads = run.backend.device().facts().threads;
    if (const auto product_s = run.backend.kernels().product_seconds()) {
        figures.seconds[phase_product] =
            (*product_s - run.product_s_before) / static_cast<double>(figures.threads);
        figures.calls[phase_product] = figures.calls[phase_compute];
    }
    figures.threads_seen = run.backend.threads_seen(run.compute);
    figures.peak_host_bytes = peak_host_bytes();
    figures.proportional_bytes = proportional_bytes();
    figures.device_bytes = run.backend.device().allocated().count;
    figures.bytes_read = run.bytes_read;
    figures.bytes_written = run.results.bytes_written();
    figures.longest_silence_s = run.watch.longest_silence_s();
    figures.longest_standstill_s = run.watch.longest_standstill_s();
    if (const comm::Communicator* c = run.communicator) {
        // What no thread of the communicator saw, the streams' clock did.
        const bool counts = c->gathers_done() > 0;
        const double busy_s = counts ? c->busy_s() : prefetch.gather_s;
        figures.bytes_received = counts ? c->bytes_received().count : prefetch.received.count;
        figures.longest_gather_s = counts ? c->longest_gather_s() : prefetch.longest_gather_s;
        figures.gather_bytes_per_s =
            busy_s > 0 ? static_cast<double>(figures.bytes_received) / busy_s : 0;
    }
}

} // namespace foregather::job
