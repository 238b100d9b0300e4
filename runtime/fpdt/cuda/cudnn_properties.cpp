// Fills one descriptor from a device or a text, and prints it.
#include "fpdt/cuda/cudnn_properties.h"

namespace fpdt::cuda {

Descriptor device_properties(std::int32_t device) {
  Descriptor properties(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  properties.set(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, device);
  properties.finalize("the properties of a device");
  return properties;
}

Descriptor device_properties(std::string_view json) {
  Descriptor properties(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  properties.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                 std::span<const char>(json));
  properties.finalize("the properties of a device");
  return properties;
}

std::string json(const Descriptor& properties) {
  const auto ask = [&](std::int64_t room, char* text) {
    std::int64_t count = 0;
    check(cudnn().cudnnBackendGetAttribute(properties.get(),
                                           CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                           CUDNN_TYPE_CHAR, room, &count, text),
          "the properties of a device as text");
    return static_cast<std::size_t>(count);
  };
  std::string text(ask(0, nullptr), '\0');
  text.resize(ask(static_cast<std::int64_t>(text.size()), text.data()));
  while (!text.empty() && (text.back() == '\0' || text.back() == '\n')) text.pop_back();
  return text;
}

}  // namespace fpdt::cuda
