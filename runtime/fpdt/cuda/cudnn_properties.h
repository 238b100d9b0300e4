// The device properties by which cuDNN chooses engines, as cuDNN writes them. Kept in a file, they
// allow tests of plans for a device that is not there (PlanTarget::properties).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fpdt/cuda/cudnn_plan.h"

namespace fpdt::cuda {

// The properties of a device of this machine (CUDA's index), or those that a text describes.
Descriptor device_properties(std::int32_t device);
Descriptor device_properties(std::string_view json);

// Prints the properties as a JSON object.
std::string json(const Descriptor& properties);

}  // namespace fpdt::cuda
