// The parts of a job of several processes: its world, and how its ranks meet.
#include "fpdt/nccl/open.h"

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/error.h"
#include "fpdt/cuda/gpu.h"
#include "fpdt/nccl/comms.h"
#include "fpdt/nccl/communicator.h"
#include "fpdt/nccl/serve.h"
#include "fpdt/nccl/world.h"

namespace fpdt {
namespace {

void require_equal_versions(World& world, const nccl::Api& api) {
  const std::vector<std::string> versions = world.gather(nccl::version_text(nccl::version(api)));
  for (std::size_t process = 1; process < versions.size(); ++process) {
    if (versions[process] == versions[0]) continue;
    throw InputError(fmt::format(
        "rank {} has NCCL {}, rank 0 has {}: ranks of one job need the same version; name the "
        "folder of one of them in LD_LIBRARY_PATH everywhere",
        process, versions[process], versions[0]));
  }
}

ncclUniqueId make_id(const nccl::Api& api) {
  ncclUniqueId id{};
  const ncclResult_t result = api.ncclGetUniqueId(&id);
  if (result == ncclSuccess) return id;
  throw InputError(
      fmt::format("NCCL cannot listen for the other ranks: {}", nccl::words(api, result)));
}

ncclUniqueId share_id(World& world, const nccl::Api& api) {
  ncclUniqueId id{};
  std::string text;
  agree(world, [&] {
    if (!world.speaks()) return;
    id = make_id(api);
    text.assign(id.internal, sizeof id.internal);
  });
  text = broadcast(world, text, 0);
  if (text.size() != sizeof id.internal) {
    throw PeerError("process 0 sent something else than NCCL's identifier");
  }
  std::memcpy(id.internal, text.data(), text.size());
  return id;
}

// The failure of another process. A rank that fails by itself aborts its communicators anyway.
std::optional<Error> failure_of(const World& world) {
  const std::optional<Failure> failure = world.failure();
  if (!failure || failure->process == world.place().process) return {};
  return PeerError(fmt::format("rank {} stopped: {}", failure->process, failure->what));
}

}  // namespace

namespace nccl {

void serve(Comms& comms, Comm& everybody, World& world, const RankMain& rank_main) {
  cuda::use_gpu(comms.options().device);  // the world may be another thread's
  std::vector<std::int64_t> nodes;
  for (const std::string& node : world.gather(std::to_string(world.place().node))) {
    nodes.push_back(std::stoll(node));
  }
  NcclCommunicator communicator(comms, everybody, std::move(nodes));
  try {
    rank_main(communicator);
  } catch (...) {
    communicator.abort(std::current_exception());
    throw;
  }
}

}  // namespace nccl

NcclJob open_nccl(const Torchrun& job, const NcclOptions& options) {
  auto world = std::make_unique<NcclWorld>(job, options);
  Connect connect = world->connect();
  return {std::move(world), std::move(connect)};
}

Connect connect_nccl(World& world, NcclOptions options) {
  FPDT_ASSERT(world.place().processes == world.place().ranks);
  options.bad_news = [&world] { return failure_of(world); };
  return [&world, options](const RankMain& rank_main) {
    const std::int64_t rank = world.place().process;
    if (world.place().nodes == 1) nccl::stay_on_host();
    const auto comms = agreed(world, [&] { return std::make_unique<nccl::Comms>(options, rank); });
    require_equal_versions(world, comms->api());
    const ncclUniqueId id = share_id(world, comms->api());
    nccl::serve(*comms, comms->form(id, world.place().ranks, "all ranks"), world, rank_main);
  };
}

}  // namespace fpdt
