// Kernels of every op that is not a collective, on a CPU.
//
// The executor resolves operands to memory. A kernel gets the op's body and one View per present
// operand, in the order of `fpdt::operands(body)`. All arithmetic is in f32 or better; bf16 is
// converted on load and rounded to nearest even on store. A kernel allocates nothing. Its scratch
// memory is reserved here, once, and kernels cut their work into blocks for which it suffices at
// every size (with 1 MiB of each thread's stack). Results have the same bits for every pool size.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "fpdt/cpu/pool.h"
#include "fpdt/runtime/view.h"
#include "fpdt/schedule/op.h"

namespace fpdt {

// Not reentrant: each lane that runs in parallel has its own Kernels (copy lanes: with a pool of
// size 1).
class Kernels {
 public:
  explicit Kernels(Pool& pool);  // the pool must outlive this
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  // Runs one op to completion. `rank` is for rank expressions. Collectives are not allowed.
  void run(const Body& body, std::span<const View> views, std::int64_t rank);

  // Scratch memory reserved by the constructor.
  [[nodiscard]] std::int64_t workspace_bytes() const;

 private:
  struct Scratch;
  Pool& pool_;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace fpdt
