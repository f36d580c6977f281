// SPDX-License-Identifier: Apache-2.0
// A GPU as a device: streams and events of the CUDA runtime, and which GPU is whose.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <foregather/device/device.hpp>

namespace foregather::device {

// How many GPUs this process sees (CUDA_VISIBLE_DEVICES counts), and why if it sees none: no
// driver, a stub of one, no GPU. Does not touch a GPU.
struct VisibleGpus {
    int count = 0;
    std::string why_none; // "this machine has no CUDA driver"
};
VisibleGpus visible_gpus();

// The ordinal of a rank's GPU among those that it sees: its local rank, or 0 if it sees one alone,
// as a launcher that binds GPUs to ranks arranges it. -1: too few are seen for this rank.
int gpu_of(int local_rank, int visible);

// "0000:3b:00.0 GPU-<uuid>" of a visible GPU, which no other GPU of the node has.
std::string gpu_address(int ordinal);

// Why the program's kernels cannot run on a GPU, or "": it was compiled for others.
std::string why_kernels_cannot_run(int ordinal);
// Does code for these architectures (80 is 8.0), the last of which is there as PTX too, run on a
// GPU of this compute capability? Binary code runs on later ones of its generation, PTX on all
// later.
bool code_runs(const std::vector<int>& archs, int capability);

// Of the first GPU that this process sees; 0 if it sees none.
base::Bytes gpu_memory();

// Makes the GPU the calling thread's and opens it; all calls on the device, its streams and events
// must come from that thread. Blocks for the driver to come up. Throws Error(failed).
std::unique_ptr<Device> make_cuda_device(int ordinal);

// Addresses of the GPUs among `others` that this process sees and whose memory the GPU cannot reach
// directly; of those that it does not see, it cannot tell.
std::vector<std::string> gpus_out_of_reach(int ordinal, const std::vector<std::string>& others);

// The toolkit that the program was built with, "13.0".
std::string cuda_built_with();

} // namespace foregather::device
