// SPDX-License-Identifier: Apache-2.0
// How ranks that set up something together, each waiting for the others inside a library, learn
// that one of them has failed: it tells all others why, by point-to-point messages.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include <foregather/mesh/control.hpp>

namespace foregather::comm {

class Alarm {
public:
    explicit Alarm(MPI_Comm group) : control_(group) {} // collective; duplicates

    // Collective. Runs `work`, which calls look() while it waits. If it throws on any rank, every
    // rank throws the same mesh::AgreedError soon after.
    void together(const std::function<void()>& work);
    // Throws what another rank has told. Does not block.
    void look() const;

private:
    void tell(const std::string& why) const;

    mesh::Control control_;
};

} // namespace foregather::comm
