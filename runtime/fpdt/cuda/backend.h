// A GPU as one rank sees it: lanes are streams, edges are events, one thread issues.
//
// The ranks of one process may share a GPU or have one each, whose kernels then read the memory of
// the others'. Each rank has its own arenas, streams and libraries. CUDA keeps a current device for
// each thread, so every function here first selects the rank's: between steps the owner of the
// ranks reads and writes them all from its own thread.
//
// The schedule decides which kernels compute attention. cuDNN computes the tiles that have a
// workspace, and its backward adds in no fixed order. Our own kernels compute the tiles without
// one, and give the same bits on every run, as all other ops do.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fpdt/cuda/cudnn_attention.h"
#include "fpdt/cuda/gpu.h"
#include "fpdt/cuda/matmul.h"
#include "fpdt/cuda/memory.h"
#include "fpdt/cuda/product_times.h"
#include "fpdt/cuda/streams.h"
#include "fpdt/runtime/backend.h"
#include "fpdt/runtime/communicator.h"
#include "fpdt/runtime/resolve.h"
#include "fpdt/schedule/key_pieces.h"

namespace fpdt {

struct CudaOptions {
  std::int32_t device = 0;  // CUDA's index
  // Use our own kernels for every tile, even for those with a workspace: the same bits on every
  // run.
  bool deterministic = false;
  // Records which algorithm was the fastest for each product on GPUs of one model; must outlive
  // the backend. Null: use the library's first algorithm, which is the same on every run. That
  // algorithm is also used whenever the same bits are promised: with `deterministic`, and when our
  // own kernels compute every tile.
  cuda::ProductTimes* times = nullptr;
  std::vector<std::int32_t> peers = {};  // devices of the other ranks; `device` may be among them
};

class CudaBackend final : public Backend {
 public:
  // Opens the device and the access to its peers (cuda/gpu.h lists the errors). The communicator
  // must outlive the backend.
  CudaBackend(Communicator& communicator, const CudaOptions& options);
  ~CudaBackend() override;

  std::byte* reserve(MemorySpace space, Bytes bytes) override;
  // Chooses algorithms and lets the library compile its kernels, which takes some seconds. Throws
  // InputError when the backend cannot run an op of the program.
  void prepare(const Program& program) override;
  void launch(const Launch& launch) override;
  void synchronise() override;
  void write(std::byte* target, std::span<const std::byte> source) override;
  void read(std::span<std::byte> target, const std::byte* source) override;
  [[nodiscard]] bool demand_paged() const override { return false; }
  // Only for device memory: `prepare` poisons its arena, and a kernel counts the poisoned words
  // that remain.
  [[nodiscard]] std::optional<Bytes> untouched(std::span<const std::byte> range) const override;

  // Device memory that this rank holds for its kernels, outside of its arena.
  [[nodiscard]] Bytes workspace_bytes() const;

 private:
  class StreamMover;
  // The state of one lane.
  struct Worker {
    cuda::DeviceMemory memory;  // [kScratchBytes + kMatmulWorkspaceBytes], if the lane computes
    std::unique_ptr<StreamMover> mover;
  };

  // How a tile of the library is cut: its keys into pieces, and its heads into launches (backward).
  struct Cut {
    std::vector<KeyPiece> pieces;
    std::int64_t members = 1;
  };

  void use() const { cuda::use_gpu(options_.device); }
  // The first lane that computes; -1 if there is none.
  [[nodiscard]] std::int32_t compute_lane() const;
  [[nodiscard]] cuda::Trial trial(const Schedule& schedule) const;
  void prepare_op(const Op& op, const Schedule& schedule, const cuda::Trial& trial);
  template <class Tile>
  void prepare_tile(const Tile& tile, const std::string& name, const Schedule& schedule);
  void run(const Launch& launch);
  template <class Tile>
  void run_tile(const Tile& tile, const cuda::Frame& frame);

  Communicator& communicator_;
  CudaOptions options_;
  cuda::DeviceMemory device_;
  std::array<cuda::PinnedMemory, kMemorySpaces.size()> hosts_;
  std::unique_ptr<cuda::Products> products_;
  std::unique_ptr<cuda::AttentionPlans> tiles_;
  std::map<const void*, Cut> cuts_;  // for the library's tiles, by body
  std::vector<Worker> workers_;
  std::unique_ptr<cuda::Streams> streams_;  // destroyed first: its streams use the rest
};

}  // namespace fpdt
