// SPDX-License-Identifier: Apache-2.0
// Ranges as NVTX describes them: a registered text and a number.
#include "ranges.hpp"

namespace foregather::device {

Ranges::Ranges() : domain_(nvtxDomainCreateA("foregather")) {}

Device::RangeName Ranges::name(const std::string& text) {
    return nvtxDomainRegisterStringA(domain_.handle(), text.c_str());
}

void Ranges::begin(Device::RangeName name, std::int64_t number) {
    nvtxEventAttributes_t range{};
    range.version = NVTX_VERSION;
    range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    range.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    range.message.registered = static_cast<nvtxStringHandle_t>(name);
    range.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    range.payload.llValue = number;
    nvtxDomainRangePushEx(domain_.handle(), &range);
}

void Ranges::end() { nvtxDomainRangePop(domain_.handle()); }

} // namespace foregather::device
