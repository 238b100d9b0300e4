// Launches ops on streams, and cuts attention tiles to fit the workspace.
#include "fpdt/cuda/backend.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cuda_runtime_api.h>
#include <numeric>
#include <nvtx3/nvToolsExt.h>
#include <string>
#include <type_traits>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/error.h"
#include "fpdt/cuda/collective.h"
#include "fpdt/cuda/kernels.h"
#include "fpdt/cuda/kernels_attention_limits.h"
#include "fpdt/cuda/kernels_memory.h"
#include "fpdt/cuda/status.h"

namespace fpdt {
namespace {

template <class Body>
inline constexpr bool kTile =
    std::is_same_v<Body, AttentionForward> || std::is_same_v<Body, AttentionBackward>;

// Whether some query sees the last key. The library's backward leaves out the gradients of keys
// that no query sees, which must be zero.
template <class Tile>
bool sees_all_keys(const Tile& tile, std::int64_t rank) {
  return tile.k_first.at(rank) + tile.k_rows <= tile.q_first.at(rank) + tile.q_rows;
}

const Buffer& buffer_of(const Schedule& schedule, const Operand& operand) {
  return schedule.buffers[static_cast<std::size_t>(operand.buffer)];
}

// Whether a step gives the same bits on every run: true if our own kernels compute all of its
// tiles.
bool promises_bits(const Schedule& schedule) {
  bool tiles = false;
  bool library = false;
  for (const Block& block : schedule.blocks) {
    for (const Op& op : block.ops) {
      std::visit(
          [&](const auto& body) {
            if constexpr (kTile<std::decay_t<decltype(body)>>) {
              tiles = true;
              library = library || body.workspace.present();
            }
          },
          op.body);
    }
  }
  return tiles && !library;
}

bool is_transfer(LaneKind kind) { return kind == LaneKind::h2d || kind == LaneKind::d2h; }

void require_plain_transfer(const Op& op, const Copy& copy, const Schedule& schedule) {
  const Buffer& source = buffer_of(schedule, copy.source);
  const Buffer& target = buffer_of(schedule, copy.target.operand);
  if (source.dtype == target.dtype && !copy.target.accumulate) return;
  throw InputError(fmt::format(
      "{}: a transfer on lane {} moves bytes; it neither converts nor adds, so give {} the type of "
      "{} or convert on the compute lane",
      op.name, word(op.lane.kind), target.name, source.name));
}

// The views of `whole` for one piece of its keys: kv and, in backward, dkv begin `skipped` rows
// later. Every piece after the first adds to the results that all pieces share.
template <class Tile>
std::vector<View> piece_views(const Tile& whole, const Tile& piece, std::int64_t skipped,
                              bool first, std::span<const View> views) {
  std::vector<View> own(views.begin(), views.end());
  const auto view = [&](const Operand& field) -> View& {
    return own[static_cast<std::size_t>(view_number(whole, views, field))];
  };
  const std::int64_t width = 2 * piece.kv_heads * piece.head_dim;
  const auto cut = [&](View& keys) {
    keys.data += skipped * width * dtype_bytes(keys.dtype);
    keys.elements = piece.k_rows * width;
  };
  const auto add_to = [&](const Target& shared) {
    if (!first) view(shared.operand).access = Access::accumulate;
  };
  cut(view(whole.kv));
  if constexpr (std::is_same_v<Tile, AttentionForward>) {
    add_to(whole.o);
    add_to(whole.lse);
  } else {
    cut(view(whole.dkv.operand));
    add_to(whole.dq);
  }
  return own;
}

}  // namespace

// Marks are events. Streams wait for them.
class CudaBackend::StreamMover final : public Mover {
 public:
  explicit StreamMover(cudaStream_t stream) : stream_(stream) {}

  Mark mark(std::size_t number) override {
    while (events_.size() <= number) events_.emplace_back(cuda::DeviceEvent::Times::no);
    cuda::check(cudaEventRecord(events_[number].get(), stream_), "a mark for other ranks");
    return events_[number].get();
  }
  void await(Mark mark) override {
    if (mark == nullptr) return;
    cuda::check(cudaStreamWaitEvent(stream_, static_cast<cudaEvent_t>(mark), 0),
                "a wait for another rank");
  }
  void receive(const Body& body, std::int64_t mine,
               std::span<const std::span<const View>> views) override {
    if (std::ssize(views) > cuda::kMembersMost) {
      throw InputError(fmt::format("{} of {} ranks on one GPU: its kernels serve at most {}",
                                   body_name(body), views.size(), cuda::kMembersMost));
    }
    cuda::receive(body, mine, views, stream_);
  }
  [[nodiscard]] void* stream() const override { return stream_; }

 private:
  cudaStream_t stream_;
  std::vector<cuda::DeviceEvent> events_;
};

CudaBackend::CudaBackend(Communicator& communicator, const CudaOptions& options)
    : communicator_(communicator), options_(options) {
  static_cast<void>(cuda::open_gpu(options.device));
  cuda::enable_peers(options.device, options.peers);
}

// The members are destroyed afterwards, on their device.
CudaBackend::~CudaBackend() { static_cast<void>(cudaSetDevice(options_.device)); }

std::byte* CudaBackend::reserve(MemorySpace space, Bytes bytes) {
  use();
  const std::string what =
      fmt::format("rank {}: the arena of {}", communicator_.rank(), word(space));
  if (space == MemorySpace::device) {
    FPDT_ASSERT(device_.bytes().empty());
    device_ = cuda::DeviceMemory(bytes, what);
    return device_.bytes().data();
  }
  cuda::PinnedMemory& host = hosts_[static_cast<std::size_t>(space)];
  FPDT_ASSERT(host.bytes().empty());
  host = cuda::PinnedMemory(bytes, what);
  return host.bytes().data();
}

void CudaBackend::prepare(const Program& program) {
  FPDT_ASSERT(streams_ == nullptr);
  use();
  streams_ = std::make_unique<cuda::Streams>(program);
  for (std::size_t i = 0; i < program.lanes.size(); ++i) {
    Worker& worker = workers_.emplace_back();
    worker.mover = std::make_unique<StreamMover>(streams_->of(static_cast<std::int32_t>(i)));
    if (program.lanes[i].kind != LaneKind::compute) continue;
    worker.memory = cuda::DeviceMemory(Bytes{cuda::kScratchBytes + cuda::kMatmulWorkspaceBytes},
                                       "scratch memory of the kernels");
  }
  const cuda::Trial on = trial(*program.schedule);
  for (const Block& block : program.schedule->blocks) {
    for (const Op& op : block.ops) prepare_op(op, *program.schedule, on);
  }
  const std::int32_t lane = compute_lane();
  if (lane < 0) return;
  cuda::poison(device_.bytes(), streams_->of(lane));
  cuda::check(cudaStreamSynchronize(streams_->of(lane)), "the poison of an arena");
}

std::int32_t CudaBackend::compute_lane() const {
  const auto place = std::find_if(workers_.begin(), workers_.end(), [](const Worker& worker) {
    return !worker.memory.bytes().empty();
  });
  return place == workers_.end() ? -1 : static_cast<std::int32_t>(place - workers_.begin());
}

cuda::Trial CudaBackend::trial(const Schedule& schedule) const {
  const std::int32_t lane = compute_lane();
  if (options_.deterministic || promises_bits(schedule) || lane < 0) return {};
  const Worker& worker = workers_[static_cast<std::size_t>(lane)];
  return {options_.times, device_.bytes(), worker.memory.bytes().data() + cuda::kScratchBytes,
          streams_->of(lane)};
}

void CudaBackend::prepare_op(const Op& op, const Schedule& schedule, const cuda::Trial& trial) {
  std::visit(
      [&](const auto& body) {
        using Kind = std::decay_t<decltype(body)>;
        if constexpr (std::is_same_v<Kind, Matmul>) {
          if (products_ == nullptr) products_ = std::make_unique<cuda::Products>();
          products_->prepare(body, schedule, trial);
        } else if constexpr (std::is_same_v<Kind, Copy>) {
          if (is_transfer(op.lane.kind)) require_plain_transfer(op, body, schedule);
        } else if constexpr (kTile<Kind>) {
          prepare_tile(body, op.name, schedule);
        }
      },
      op.body);
}

// Finds the largest pieces that the workspace can serve, and the most members per launch.
template <class Tile>
void CudaBackend::prepare_tile(const Tile& tile, const std::string& name,
                               const Schedule& schedule) {
  constexpr bool kBackward = std::is_same_v<Tile, AttentionBackward>;
  const std::int64_t rank = communicator_.rank();
  if (!tile.workspace.present() || options_.deterministic ||
      (kBackward && !sees_all_keys(tile, rank))) {
    const Dtype q = buffer_of(schedule, tile.q).dtype;
    if (cuda::serves(tile, q)) return;
    throw InputError(fmt::format(
        "{}: no kernel for attention of {} and {} heads of {} in {}: heads of 8 to {} in steps of "
        "8 "
        "and bf16 are supported; {}",
        name, tile.heads, tile.kv_heads, tile.head_dim, word(q), cuda::kAttentionSizeMost,
        q == Dtype::bf16 ? "--backend cpu runs others" : "plan with `storage: bf16`"));
  }
  if (const std::string why = cuda::why_no_cudnn(); !why.empty()) {
    throw InputError(fmt::format(
        "{} is a tile for cuDNN: {}; or run the built-in kernels with --deterministic", name, why));
  }
  if (tiles_ == nullptr) tiles_ = std::make_unique<cuda::AttentionPlans>();
  const Bytes room = buffer_of(schedule, tile.workspace).slot_bytes();
  const auto keys = static_cast<std::uint64_t>(std::max<std::int64_t>(128, tile.k_rows));
  auto most = static_cast<std::int64_t>(std::bit_floor(keys));
  if (kBackward) most = std::min(most, kBackwardPieceMost);
  Cut& cut = cuts_[&tile];
  const auto needs = [&](std::int64_t rows) {
    cut.pieces =
        key_pieces(tile.q_first.at(rank), tile.q_rows, tile.k_first.at(rank), tile.k_rows, rows);
    std::vector<cuda::AttentionTile> tiles;
    for (const KeyPiece& piece : cut.pieces) {
      Tile part = tile;
      part.k_first = piece.first;
      part.k_rows = piece.rows;
      tiles.push_back(cuda::tile_of(part, rank));
    }
    Bytes most_bytes;
    if (kBackward && !tiles.empty()) {
      cut.members = tiles_->members_within(
          room, *std::max_element(tiles.begin(), tiles.end(), [](const auto& a, const auto& b) {
            return a.k_rows < b.k_rows;
          }));
    }
    for (cuda::AttentionTile& one : tiles) {
      one.members = cut.members;
      most_bytes = std::max(most_bytes, tiles_->prepare(one));
    }
    return most_bytes;
  };
  Bytes need = needs(most);
  while (need > room && most > 128) need = needs(most /= 2);
  if (need > room) {
    throw InputError(fmt::format(
        "{}: an attention tile of {} queries has a workspace of {}, but cuDNN needs {}: lower the "
        "schedule again for this GPU, or run it with --deterministic",
        name, tile.q_rows, format_bytes(room), format_bytes(need)));
  }
}

void CudaBackend::launch(const Launch& launch) {
  use();  // costs little beside a launch when it is the current one already
  nvtxRangePushA(launch.op->name.c_str());
  launch.flight.begin(launch.lane, *launch.op);
  streams_->before(launch);
  run(launch);
  streams_->after(launch);
  launch.flight.end(launch.lane, FlightState::launched);
  nvtxRangePop();
}

void CudaBackend::run(const Launch& launch) {
  const Worker& worker = workers_[static_cast<std::size_t>(launch.lane)];
  const cuda::Frame frame{launch.views, communicator_.rank(), streams_->of(launch.lane),
                          worker.memory.bytes().data()};
  std::visit(
      [&](const auto& op) {
        using Kind = std::decay_t<decltype(op)>;
        if constexpr (std::is_same_v<Kind, Matmul>) {
          products_->run(op, frame, frame.scratch + cuda::kScratchBytes);
        } else if constexpr (kTile<Kind>) {
          run_tile(op, frame);
        } else if constexpr (std::is_same_v<Kind, Copy>) {
          if (!is_transfer(launch.op->lane.kind)) return cuda::execute(op, frame);
          const View source = frame.view(op, op.source);
          const View target = frame.view(op, op.target);
          cuda::each_part(target.data, source.data, static_cast<std::size_t>(source.bytes()),
                          [&](std::byte* to, const std::byte* from, std::size_t bytes) {
                            cuda::check(
                                cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, frame.stream),
                                "a transfer");
                          });
        } else if constexpr (IsCollective<Kind>) {
          communicator_.collective(launch.op->body, launch.lane, launch.views, *worker.mover);
        } else {
          cuda::execute(op, frame);
        }
      },
      launch.op->body);
}

template <class Tile>
void CudaBackend::run_tile(const Tile& tile, const cuda::Frame& frame) {
  const auto cut = cuts_.find(&tile);
  // Without pieces no key is seen. Our kernel writes the results for that.
  if (cut == cuts_.end() || cut->second.pieces.empty()) return cuda::execute(tile, frame);
  bool first = true;
  for (const KeyPiece& piece : cut->second.pieces) {
    Tile part = tile;
    part.k_first = piece.first;
    part.k_rows = piece.rows;
    const std::vector<View> views =
        piece_views(tile, part, piece.first - tile.k_first.at(frame.rank), first, frame.views);
    const cuda::Frame own{views, frame.rank, frame.stream, frame.scratch};
    if constexpr (std::is_same_v<Tile, AttentionForward>) {
      tiles_->execute(part, own);
    } else {
      tiles_->execute(part, cut->second.members, own);
    }
    first = false;
  }
}

void CudaBackend::synchronise() {
  use();
  streams_->synchronise();
  communicator_.settle();
}

void CudaBackend::write(std::byte* target, std::span<const std::byte> source) {
  use();
  cuda::copy_now(target, source.data(), source.size(), "a write between steps");
}

void CudaBackend::read(std::span<std::byte> target, const std::byte* source) {
  use();
  cuda::copy_now(target.data(), source, target.size(), "a read between steps");
}

std::optional<Bytes> CudaBackend::untouched(std::span<const std::byte> range) const {
  const std::span<const std::byte> arena = device_.bytes();
  const std::int32_t lane = compute_lane();
  // The lane's scratch memory is free between steps.
  if (lane < 0 || range.data() < arena.data() ||
      range.data() + range.size() > arena.data() + arena.size()) {
    return {};
  }
  use();
  auto* const place = reinterpret_cast<std::int64_t*>(
      workers_[static_cast<std::size_t>(lane)].memory.bytes().data());
  const std::int64_t used = cuda::count_poisoned(range, place, streams_->of(lane));
  cuda::check(cudaStreamSynchronize(streams_->of(lane)), "the count of untouched words");
  std::array<std::int64_t, cuda::kPoisonCounts> counts{};
  cuda::check(cudaMemcpy(counts.data(), place, static_cast<std::size_t>(used) * sizeof counts[0],
                         cudaMemcpyDefault),
              "the count of untouched words");
  constexpr std::int64_t kWord = sizeof(cuda::kPoison);
  return kWord * Bytes{std::accumulate(counts.begin(), counts.end(), std::int64_t{0})};
}

Bytes CudaBackend::workspace_bytes() const {
  Bytes sum;
  for (const Worker& worker : workers_) sum += Bytes{std::ssize(worker.memory.bytes())};
  return sum;
}

}  // namespace fpdt
