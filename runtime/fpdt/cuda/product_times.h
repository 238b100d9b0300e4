// Which of several ways to compute a product is the fastest on this GPU, measured once before the
// first step.
//
// One table serves all ranks and backends of a process that use one device: they choose alike, and
// measure a product once. Two processes may choose differently.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "fpdt/cuda/frame.h"

namespace fpdt::cuda {

// The ways to compute a product, as cuBLASLt ranks them.
struct Ways {
  std::size_t count = 0;
  std::function<void()> fill;            // its operands, before the first is run
  std::function<bool(std::size_t)> run;  // puts one on the stream; false: it cannot run
};

class ProductTimes {
 public:
  // The fastest way; of those that are within 2 % of each other the first. Waits for the stream
  // and for other measurements. `product` names it, with all that an algorithm depends on.
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
