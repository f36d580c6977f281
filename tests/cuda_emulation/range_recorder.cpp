// SPDX-License-Identifier: Apache-2.0
// What a profiler injects into NVTX, as a library: writes the ranges of domain "foregather" to the
// file FOREGATHER_RANGES.<process>, a line each: "+ number name" where one begins, "-" where it
// ends. Which ranges there should be is the tests' affair.
#include <cstdio>
#include <cstdlib>
#include <string>

#include <unistd.h>

#include <nvtx3/nvToolsExt.h>

namespace {

std::FILE* file = nullptr;

struct Domain {
    bool ours = false;
};

Domain* of(nvtxDomainHandle_t handle) { return reinterpret_cast<Domain*>(handle); }

nvtxDomainHandle_t NVTX_API create(const char* name) {
    return reinterpret_cast<nvtxDomainHandle_t>(new Domain{std::string(name) == "foregather"});
}

void NVTX_API destroy(nvtxDomainHandle_t domain) { delete of(domain); }

// Texts live as long as the process, as in a profiler.
nvtxStringHandle_t NVTX_API register_text(nvtxDomainHandle_t, const char* text) {
    return reinterpret_cast<nvtxStringHandle_t>(new std::string(text));
}

int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* range) {
    if (file != nullptr && domain != nullptr && of(domain)->ours) {
        const bool named = range->messageType == NVTX_MESSAGE_TYPE_REGISTERED &&
                           range->message.registered != nullptr;
        const auto* name = reinterpret_cast<const std::string*>(range->message.registered);
        std::fprintf(file, "+ %lld %s\n", static_cast<long long>(range->payload.llValue),
                     named ? name->c_str() : "(no name)");
    }
    return 0;
}

int NVTX_API pop(nvtxDomainHandle_t domain) {
    if (file != nullptr && domain != nullptr && of(domain)->ours) {
        std::fputs("-\n", file);
    }
    return 0;
}

template <class Function>
void put(NvtxFunctionTable table, unsigned size, unsigned call, Function function) {
    if (call < size) {
        *table[call] = reinterpret_cast<NvtxFunctionPointer>(function);
    }
}

} // namespace

// The entry that NVTX calls at the first use; 1: injected.
extern "C" int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t tables) {
    const char* path = std::getenv("FOREGATHER_RANGES");
    const auto* callbacks =
        static_cast<const NvtxExportTableCallbacks*>(tables(NVTX_ETID_CALLBACKS));
    NvtxFunctionTable table = nullptr;
    unsigned size = 0;
    if (path == nullptr || callbacks == nullptr ||
        callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) {
        return 0;
    }
    file = std::fopen((std::string(path) + "." + std::to_string(getpid())).c_str(), "w");
    put(table, size, NVTX_CBID_CORE2_DomainCreateA, create);
    put(table, size, NVTX_CBID_CORE2_DomainDestroy, destroy);
    put(table, size, NVTX_CBID_CORE2_DomainRegisterStringA, register_text);
    put(table, size, NVTX_CBID_CORE2_DomainRangePushEx, push);
    put(table, size, NVTX_CBID_CORE2_DomainRangePop, pop);
    return 1;
}
