// Matrix products by cuBLASLt, in a given workspace.
//
// Each shape gets its algorithm before the first step: the first that cuBLASLt names, or the
// fastest of its first few. Only reductions with a fixed order are allowed, so the same algorithm
// gives the same bits on every run on the same kind of GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "fpdt/base/units.h"
#include "fpdt/cuda/frame.h"
#include "fpdt/cuda/product_times.h"
#include "fpdt/schedule/op.h"
#include "fpdt/schedule/schedule.h"

namespace fpdt::cuda {

// Per lane that computes. NVIDIA recommends this size on Hopper.
inline constexpr std::int64_t kMatmulWorkspaceBytes = 32 << 20;

// How products are timed: in the operands' own memory, whose contents are not needed yet.
struct Trial {
  ProductTimes* times = nullptr;   // null: do not time
  std::span<std::byte> arena;      // of the device
  std::byte* workspace = nullptr;  // [kMatmulWorkspaceBytes]
  Stream stream = nullptr;
};

class Products {
 public:
  Products();
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // Chooses an algorithm for the op. Throws InputError when the types of its operands do not fit: a
  // and b must have one type, f32 or bf16; addend and out must have one type, and so must bias and
  // out unless out is f32.
  void prepare(const Matmul& op, const Schedule& schedule, const Trial& trial);

  // `workspace`: [kMatmulWorkspaceBytes] on the device. Precondition: the op was prepared.
  void run(const Matmul& op, const Frame& frame, std::byte* workspace);

 private:
  struct Chosen;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fpdt::cuda
