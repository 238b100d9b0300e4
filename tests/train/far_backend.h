// A device that the host cannot address, so reads and writes go through the backend.
#pragma once

#include <memory>

#include "fpdt/cpu/backend.h"

namespace fpdt {

class FarBackend final : public CpuBackend {
 public:
  explicit FarBackend(Communicator& communicator) : CpuBackend(communicator, {1, Populate::no}) {}
  [[nodiscard]] bool demand_paged() const override { return false; }
};

inline std::unique_ptr<Backend> make_far_backend(Communicator& communicator) {
  return std::make_unique<FarBackend>(communicator);
}

}  // namespace fpdt
