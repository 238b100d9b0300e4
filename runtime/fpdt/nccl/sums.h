// Sums over ranks: blocks moved into the workspace of the op, then added there in member order.
//
// In a round each member sends every other member a piece of the block that it owes it. The pieces
// lie side by side in the workspace, and the lane's kernel adds them and this member's own in f32:
// the same bits as fpdt::receive. A round takes pieces of as many operands as the workspace holds.
// All members have the same sizes, so they cut alike. In a reduce-scatter each element crosses a
// link once. In an all-reduce every member receives all blocks, which suits the single numbers that
// plans reduce; a large sum is a reduce-scatter followed by an all-gather.
//
// With `native_sums` NCCL adds where it can: into the target, or into the workspace, if a block
// fits there, when the op adds to its target.
#pragma once

#include <array>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <span>
#include <vector>

#include "fpdt/nccl/comms.h"
#include "fpdt/runtime/collective.h"
#include "fpdt/runtime/communicator.h"

namespace fpdt::nccl {

// The type of elements that are added: f32 or bf16.
ncclDataType_t type_of(Dtype dtype);

class Sums {
 public:
  // `comms` must outlive this.
  explicit Sums(Comms& comms) : comms_(comms) {}

  // Makes room for sums of this many pairs of operands and members; later ones allocate nothing.
  void reserve(std::size_t pairs, std::size_t members);

  // Queues a reduce-scatter (`scatters`) or an all-reduce on the stream. `lane` has all ranks and
  // carries messages, `own` has the members and adds where it can; null: nobody but this class
  // does. `views`: the sends, the receives, and the workspace.
  void run(bool scatters, const Comm& lane, const Comm* own, const Membership& members,
           std::span<const View> views, cudaStream_t stream, Mover& mover);

 private:
  // The op that is being queued.
  struct Call {
    bool scatters = false;
    const Comm& lane;
    const Comm* own = nullptr;
    Membership members;
    View workspace;
    cudaStream_t stream = nullptr;
    Mover& mover;
  };
  // A piece of one pair of operands.
  struct Part {
    View send, target;                    // whole
    std::int64_t first = 0, count = 0;    // elements of the target
    std::int64_t offset = 0, stride = 0;  // bytes in the workspace: of member 0, and to the next
  };

  bool run_natively(const Call& call, const View& send, const View& target);
  void cut(const Call& call, const View& send, const View& target);
  void flush(const Call& call);

  Comms& comms_;
  std::vector<Part> parts_;                   // of this round
  std::int64_t used_ = 0;                     // bytes of the workspace that they take
  std::vector<std::array<View, 2>> terms_;    // [member]: what it sent, and this member's target
  std::vector<std::span<const View>> spans_;  // [member]: of terms_
};

}  // namespace fpdt::nccl
