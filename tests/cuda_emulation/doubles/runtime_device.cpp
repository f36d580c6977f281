// SPDX-License-Identifier: Apache-2.0
// Devices, versions, attributes and errors of the test double of the CUDA runtime, behind the
// real symbols. The device it shows is nobody's: its numbers are limits that kernels must keep,
// and say nothing of speed. Tests only.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string_view>

#include <unistd.h>

#include "call.hpp"

using namespace foregather::emulation;

namespace {

constexpr int version = 13000;
constexpr int multiprocessors = 8;
constexpr int threads_of_block = 1024;
constexpr std::size_t shared_of_block = 48 * 1024;
std::int64_t shared_of_block_optin() { return setting("FOREGATHER_EMULATION_SHARED", 227 * 1024); }
int capability() { return static_cast<int>(setting("FOREGATHER_EMULATION_CAPABILITY", 90)); }
constexpr std::size_t shared_of_multiprocessor = 228 * 1024;
constexpr int first_bus = 0x17;
constexpr int bus_step = 0x10;

thread_local cudaError_t last_error = cudaSuccess;

int bus_of(int physical) { return first_bus + bus_step * physical; }

// The same for a physical device in every process of the node, whatever its number there.
void fill_uuid(cudaUUID_t& uuid, int physical) {
    char host[256] = "";
    ::gethostname(host, sizeof host - 1);
    const std::size_t node = std::hash<std::string_view>{}(host);
    std::memcpy(uuid.bytes, &node, sizeof node);
    std::memcpy(uuid.bytes + sizeof node, &physical, sizeof physical);
}

cudaError_t call_for_device(const char* function, int device,
                            const std::function<cudaError_t(const Engine&)>& body) {
    return call_anywhere(function, cudaErrorUnknown, [&](Engine& the, Lock&) {
        const cudaError_t error = usable(the, device);
        return error == cudaSuccess ? body(the) : error;
    });
}

int value_of(cudaDeviceAttr attribute, int device, const Engine& the, bool& known) {
    const int physical = the.devices[static_cast<std::size_t>(device)].physical;
    known = true;
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
        return threads_of_block;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        return static_cast<int>(shared_of_block);
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        return static_cast<int>(shared_of_block_optin());
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        return static_cast<int>(shared_of_multiprocessor);
    case cudaDevAttrMultiProcessorCount:
        return multiprocessors;
    case cudaDevAttrWarpSize:
        return 32;
    case cudaDevAttrComputeCapabilityMajor:
        return capability() / 10;
    case cudaDevAttrComputeCapabilityMinor:
        return capability() % 10;
    case cudaDevAttrPciBusId:
        return bus_of(physical);
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId:
    case cudaDevAttrComputeMode:
    case cudaDevAttrIntegrated:
        return 0;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrConcurrentKernels:
        return 1;
    default:
        known = false;
        return 0;
    }
}

} // namespace

namespace foregather::emulation {

cudaError_t remembered(cudaError_t error) {
    if (error != cudaSuccess) {
        last_error = error;
    }
    return error;
}

} // namespace foregather::emulation

extern "C" {

cudaError_t cudaDriverGetVersion(int* number) {
    return call_anywhere(__func__, cudaErrorInvalidValue, [&](Engine& the, Lock&) {
        *number = the.driver ? version : 0;
        return cudaSuccess;
    });
}

cudaError_t cudaRuntimeGetVersion(int* number) {
    return call_anywhere(__func__, cudaErrorInvalidValue, [&](Engine&, Lock&) {
        *number = version;
        return cudaSuccess;
    });
}

cudaError_t cudaGetDeviceCount(int* devices) {
    return call_anywhere(__func__, cudaErrorUnknown, [&](Engine& the, Lock&) {
        if (!the.driver) {
            return cudaErrorInsufficientDriver;
        }
        *devices = static_cast<int>(the.devices.size());
        return the.devices.empty() ? cudaErrorNoDevice : cudaSuccess;
    });
}

cudaError_t cudaSetDevice(int device) {
    return call_for_device(__func__, device, [&](const Engine&) {
        current_device() = device;
        return cudaSuccess;
    });
}

cudaError_t cudaGetDevice(int* device) {
    return call_for_device(__func__, current_device(), [&](const Engine&) {
        *device = current_device();
        return cudaSuccess;
    });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    return call_for_device(__func__, device, [&](const Engine& the) {
        const int physical = the.devices[static_cast<std::size_t>(device)].physical;
        *properties = {};
        std::snprintf(properties->name, sizeof properties->name, "Emulated GPU");
        fill_uuid(properties->uuid, physical);
        properties->totalGlobalMem = the.memory_per_device;
        properties->sharedMemPerBlock = shared_of_block;
        properties->sharedMemPerBlockOptin = static_cast<std::size_t>(shared_of_block_optin());
        properties->sharedMemPerMultiprocessor = shared_of_multiprocessor;
        properties->regsPerBlock = 65536;
        properties->regsPerMultiprocessor = 65536;
        properties->warpSize = 32;
        properties->maxThreadsPerBlock = threads_of_block;
        properties->maxThreadsPerMultiProcessor = 2048;
        properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = threads_of_block;
        properties->maxThreadsDim[2] = 64;
        properties->maxGridSize[0] = 2147483647;
        properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
        properties->major = capability() / 10;
        properties->minor = capability() % 10;
        properties->multiProcessorCount = multiprocessors;
        properties->concurrentKernels = 1;
        properties->pciBusID = bus_of(physical);
        properties->asyncEngineCount = 2;
        properties->unifiedAddressing = 1;
        properties->streamPrioritiesSupported = 1;
        return cudaSuccess;
    });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    return call_for_device(__func__, device, [&](const Engine& the) {
        bool known = false;
        *value = value_of(attribute, device, the, known);
        if (!known) {
            not_modelled("cudaDeviceGetAttribute of " + std::to_string(attribute));
        }
        return known ? cudaSuccess : cudaErrorNotSupported;
    });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
    return call_for_device(__func__, device, [&](const Engine& the) {
        const int bus = bus_of(the.devices[static_cast<std::size_t>(device)].physical);
        const int written = std::snprintf(text, static_cast<std::size_t>(std::max(length, 0)),
                                          "0000:%02x:00.0", static_cast<unsigned>(bus));
        return written < length ? cudaSuccess : cudaErrorInvalidValue;
    });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    return call_on_device(__func__, cudaErrorUnknown, [&](Engine&, Lock&) {
        *least = 0;
        *greatest = -5;
        return cudaSuccess;
    });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
    return call_for_device(__func__, device, [&](const Engine& the) {
        const cudaError_t error = usable(the, peer);
        *can = device != peer && setting("FOREGATHER_EMULATION_PEERS", 1) != 0 ? 1 : 0;
        return error;
    });
}

cudaError_t cudaDeviceReset() {
    return call_on_device(__func__, cudaErrorUnknown, [&](Engine&, Lock&) {
        not_modelled("cudaDeviceReset");
        return cudaErrorNotSupported;
    });
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
    return call_on_device(__func__, cudaErrorInvalidValue, [&](Engine&, Lock&) {
        if (function == nullptr) {
            return cudaErrorInvalidDeviceFunction;
        }
        if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) {
            return value >= -1 && value <= 100 ? cudaSuccess : cudaErrorInvalidValue;
        }
        if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) {
            not_modelled("cudaFuncSetAttribute of " + std::to_string(attribute));
            return cudaErrorNotSupported;
        }
        return value >= 0 && value <= shared_of_block_optin() ? cudaSuccess : cudaErrorInvalidValue;
    });
}

// A failure of the device stays; any other error is forgotten once it is told.
cudaError_t cudaGetLastError() {
    const cudaError_t error = cudaPeekAtLastError();
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError() {
    Engine& the = engine();
    const Lock lock(the.mutex);
    const auto device = static_cast<std::size_t>(current_device());
    const bool failed = device < the.devices.size() && the.devices[device].failure != cudaSuccess;
    return failed ? the.devices[device].failure : last_error;
}

const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorInvalidValue:
        return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver:
        return "cudaErrorInsufficientDriver";
    case cudaErrorInvalidDeviceFunction:
        return "cudaErrorInvalidDeviceFunction";
    case cudaErrorNoDevice:
        return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
        return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
        return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
        return "cudaErrorNotReady";
    case cudaErrorIllegalAddress:
        return "cudaErrorIllegalAddress";
    case cudaErrorLaunchOutOfResources:
        return "cudaErrorLaunchOutOfResources";
    case cudaErrorLaunchFailure:
        return "cudaErrorLaunchFailure";
    case cudaErrorNotSupported:
        return "cudaErrorNotSupported";
    case cudaErrorUnknown:
        return "cudaErrorUnknown";
    default:
        return "unrecognized error code";
    }
}

const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
    case cudaSuccess:
        return "no error";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInsufficientDriver:
        return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorNotReady:
        return "device not ready";
    case cudaErrorLaunchFailure:
        return "unspecified launch failure";
    case cudaErrorIllegalAddress:
        return "an illegal memory access was encountered";
    default:
        return cudaGetErrorName(error);
    }
}

} // extern "C"
