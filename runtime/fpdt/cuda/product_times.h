// Measures, once before the first step, which of several ways to compute a product is the fastest
// on a GPU.
//
// One table serves all ranks and backends of a process, whose GPUs must be of one model. So they
// choose alike, and each product is measured once. Two processes may choose differently.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "fpdt/cuda/frame.h"

namespace fpdt::cuda {

// The ways to compute a product, in cuBLASLt's order.
struct Ways {
  std::size_t count = 0;
  std::function<void()> fill;            // fills the operands before the first run
  std::function<bool(std::size_t)> run;  // launches one on the stream; false: it cannot run
};

class ProductTimes {
 public:
  // Returns the fastest way; among ways within 2 % of each other, the first. Waits for the stream
  // and for other measurements. `product` names the product with everything that the choice depends
  // on.
  std::size_t fastest(const std::string& product, const Ways& ways, Stream stream);

  // [{"product":...,"chosen":i,"of":n,"seconds":...,"first_seconds":...},...]
  [[nodiscard]] std::string json() const;

 private:
  struct Choice {
    std::size_t chosen = 0, of = 0;
    double seconds = 0, first_seconds = 0;  // of the chosen way, and of the first
  };
  mutable std::mutex mutex_;
  std::map<std::string, Choice> choices_;
};

}  // namespace fpdt::cuda
