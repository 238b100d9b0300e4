// Provides the tests' GPU before main begins. It has no properties that cuDNN would know.
#include <string>

#include "fpdt/cuda/cudnn_properties.h"

#include "fake_runtime.h"

namespace fpdt {
namespace {

struct Begin {
  Begin() { fake::set({.memory = std::int64_t{4} << 30}); }
};
const Begin kBegin;

}  // namespace

namespace cuda {

Descriptor::Descriptor(cudnnBackendDescriptorType_t) {}
Descriptor device_properties(std::int32_t) {
  return Descriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
}
std::string json(const Descriptor&) { return "{}"; }

}  // namespace cuda
}  // namespace fpdt
