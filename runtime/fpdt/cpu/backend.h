// A backend for every machine: lanes are threads, and every memory space is host memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "fpdt/cpu/kernels.h"
#include "fpdt/cpu/lanes.h"
#include "fpdt/cpu/pool.h"
#include "fpdt/runtime/arena.h"
#include "fpdt/runtime/backend.h"
#include "fpdt/runtime/communicator.h"
#include "fpdt/runtime/resolve.h"

namespace fpdt {

struct CpuOptions {
  std::int32_t threads = 0;  // per compute lane; 0: the rank's share of the cores
  Populate populate = Populate::no;
  // Called after each op, by the thread of its lane, before ops that wait for it begin; null: not.
  std::function<void(std::int32_t lane, const Op& op, std::span<const View> views)> after{};
  bool in_order = false;  // the thread of the rank runs each op when it is launched
};

class CpuBackend : public Backend {
 public:
  // The communicator must outlive the backend.
  explicit CpuBackend(Communicator& communicator, const CpuOptions& options = {});
  ~CpuBackend() override;

  std::byte* reserve(MemorySpace space, Bytes bytes) override;
  void prepare(const Program& program) override;
  void launch(const Launch& launch) override;
  void synchronise() override;
  void write(std::byte* target, std::span<const std::byte> source) override;
  void read(std::span<std::byte> target, const std::byte* source) override;
  [[nodiscard]] bool demand_paged() const override { return options_.populate == Populate::no; }

  // Size of the kernels' scratch memory, which lies outside of every arena.
  [[nodiscard]] Bytes workspace_bytes() const;

 private:
  // The state of one lane. A lane that runs only collectives has none.
  struct Worker {
    std::unique_ptr<Pool> pool;
    std::unique_ptr<Kernels> kernels;
  };

  void run(std::int32_t lane, const Op& op, std::span<const View> views);

  Communicator& communicator_;
  CpuOptions options_;
  std::array<Reservation, kMemorySpaces.size()> reservations_;
  Bytes reserved_;
  std::vector<Worker> workers_;
  std::unique_ptr<Lanes> lanes_;  // destroyed first: its threads use the other members
};

}  // namespace fpdt
