// SPDX-License-Identifier: Apache-2.0
// Signals by which batch systems and people ask a job to stop early: noted here, acted on between
// steps by whoever asks. It decides nothing.
#pragma once

namespace foregather::mesh {

// While it lives, the first SIGUSR1 or SIGTERM is noted; the next of either ends the process as it
// would without this object. One of it in a process.
class StopSignals {
public:
    StopSignals(); // throws Error(failed) if the system refuses handlers
    ~StopSignals();
    StopSignals(const StopSignals&) = delete;
    StopSignals& operator=(const StopSignals&) = delete;

    // Signals do what they would without this object again; one that has come does so now.
    void give_up();

    // "SIGUSR1" or "SIGTERM" once it has come to this process, else nullptr. From any thread.
    static const char* received();
};

} // namespace foregather::mesh
