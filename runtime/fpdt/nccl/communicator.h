// Ranks as processes with a GPU each, connected by NCCL.
//
// Every lane has a communicator of all ranks for its messages, so that collectives of two lanes do
// not wait for each other. A collective is queued on the lane's stream. Blocks are moved by
// messages, those of an op in one group of calls. An all-gather across nodes is NCCL's own, which
// lets every block cross the network once for each node; within a node messages are as fast and
// need no buffers beside those of the all-to-all. Sums are messages and additions (nccl/sums.h).
// NCCL's own collectives run on a communicator of their lane and group.
//
// Memory. For each channel NCCL takes 10 MiB to receive from a peer of the same node and 2 MiB to
// send to it (2.28.9, transport/p2p.cc), when a communicator first uses that peer. Groups share
// their lane's communicator, so a lane opens a peer once. `warm_up` opens all that the program
// uses; then nothing is allocated. The first message opens all channels to a peer, whatever its
// size (p2pTaskAppend in NCCL's enqueue.cc). NCCL's own collectives choose an algorithm, and with
// it the channels that they open, by the number of bytes, so `warm_up` runs each of them once for
// each size of the program.
//
// Failures. Watch finds collectives that do not end and errors that NCCL reports, and aborts.
// Across nodes the others see an error when their connections break. Within a node GPUs write to
// each other's memory, so they see nothing: there the deadline ends them, or whoever started the
// processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fpdt/nccl/comms.h"
#include "fpdt/nccl/post.h"
#include "fpdt/nccl/sums.h"
#include "fpdt/nccl/watch.h"
#include "fpdt/runtime/collective.h"
#include "fpdt/runtime/communicator.h"

namespace fpdt {

class NcclCommunicator final : public Communicator {
 public:
  // Call it on the thread that issues the rank's ops. `nodes[r]` is the host of rank r, by any
  // number; all ranks give the same. Both references must outlive this.
  NcclCommunicator(nccl::Comms& comms, nccl::Comm& everybody, std::vector<std::int64_t> nodes);
  ~NcclCommunicator() override;

  [[nodiscard]] std::int64_t rank() const override { return comms_.rank(); }
  [[nodiscard]] std::int64_t ranks() const override { return std::ssize(nodes_); }
  [[nodiscard]] std::int64_t local_ranks() const override;

  // Together with the other ranks. Throws InputError when a sum has no workspace, or more members
  // than the kernel adds.
  void prepare(const Program& program) override;
  void warm_up(std::span<std::byte> arena) override;
  void collective(const Body& body, std::int32_t lane, std::span<const View> views,
                  Mover& mover) override;
  void settle() override;
  void barrier() override;
  void abort(std::exception_ptr cause) noexcept override;

  // Device memory that NCCL has taken so far, and this class for its messages.
  [[nodiscard]] Bytes device_bytes() const;

 private:
  // The resources of a collective of the program.
  struct Seat {
    std::string what;  // for people
    Membership members;
    std::int64_t near = 0;       // members that it sends to, on this rank's host
    std::int64_t far = 0;        // and on others
    nccl::Comm* lane = nullptr;  // for messages; null: a group of one
    nccl::Comm* own = nullptr;   // for NCCL's own collective; null: messages
  };
  // NCCL's own collectives of a communicator, by the bytes of a block: of an all-gather, of a
  // reduction and its type.
  struct Own {
    nccl::Comm* comm = nullptr;
    std::set<std::int64_t> gathers{};
    std::set<std::pair<Dtype, std::int64_t>> scatters{}, reductions{};
  };
  // The messages of a lane: of this rank with others.
  struct Lane {
    nccl::Comm* comm = nullptr;
    std::set<std::int64_t> peers{};
  };

  void close();
  void seat(const Program& program, const PlainOp& op);
  Lane& lane_of(std::int32_t lane, const std::string& name);
  Own& own_of(std::int32_t lane, const Group& group, const Membership& members,
              const std::string& name);
  [[nodiscard]] std::int64_t node_of(std::int64_t rank) const;
  [[nodiscard]] bool is_near(const Group& group) const;
  void open(const Lane& lane, std::span<std::byte> arena);
  void open(const Own& own, std::span<std::byte> arena);
  void move(const Body& body, const Seat& seat, std::span<const View> views, cudaStream_t stream);

  nccl::Comms& comms_;
  nccl::Comm& everybody_;
  const std::vector<std::int64_t> nodes_;
  nccl::Post post_;
  nccl::Sums sums_;
  std::unordered_map<const Body*, Seat> seats_;
  std::map<std::int32_t, Lane> lanes_;
  // By lane, and by the size, the stride and the first rank of every rank's group.
  std::map<std::pair<std::int32_t, std::vector<std::int64_t>>, Own> owns_;
  std::optional<nccl::Watch> watch_;
};

}  // namespace fpdt
