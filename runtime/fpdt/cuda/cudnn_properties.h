// The properties of a device by which cuDNN chooses engines, as cuDNN writes them: kept in a file,
// they let plans for that device be tested where there is none (PlanTarget::properties).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fpdt/cuda/cudnn_plan.h"

namespace fpdt::cuda {

// A device of this machine, as CUDA counts them, or one that such a text describes.
Descriptor device_properties(std::int32_t device);
Descriptor device_properties(std::string_view json);

// Their text, a JSON object.
std::string json(const Descriptor& properties);

}  // namespace fpdt::cuda
