// SPDX-License-Identifier: Apache-2.0
// Which parts of which units are in the shared window: an epoch for each rank and unit, posted by
// the part's owner and waited for by readers. No bytes are moved.
#pragma once

#include <string>
#include <vector>

#include <foregather/base/types.hpp>
#include <foregather/device/stream.hpp>
#include <foregather/mesh/window.hpp>

namespace foregather::comm {

class SharedBoard {
public:
    // Collective over `group`, all on one node. A wait longer than timeout_s ends the job with one
    // line that names the ranks that did not post, and says what they `missed`.
    SharedBoard(MPI_Comm group, int units, double timeout_s,
                std::string missed = "did not load its part");

    // What this rank wrote to its part of the unit before is visible to whoever waits for the
    // epoch.
    void post(base::UnitId unit, std::uint64_t epoch);
    // The same once all that is on the host stream before is done. This object must outlive that.
    void post(base::UnitId unit, std::uint64_t epoch, device::Stream& stream);
    // Enqueues on a host stream: what follows starts once all ranks have posted the epoch or a
    // later one. `what` names the unit in messages. This object must outlive the wait.
    void wait(base::UnitId unit, std::uint64_t epoch, const std::string& what,
              device::Stream& stream);

private:
    std::uint64_t* cell(int rank, base::UnitId unit) const;
    void wait_now(base::UnitId unit, std::uint64_t epoch, const std::string& what);

    int rank_ = 0;
    int size_ = 1;
    int units_;
    double timeout_s_;
    std::string missed_;
    mesh::SharedWindow window_;      // [1 + size * units]: who tells of a timeout, then the epochs
    std::vector<std::string> names_; // of the group's ranks, for messages
};

} // namespace foregather::comm
