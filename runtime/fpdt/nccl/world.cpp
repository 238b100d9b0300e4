// Messages through NCCL.
#include "fpdt/nccl/world.h"

#include <cstdlib>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/error.h"
#include "fpdt/nccl/serve.h"

namespace fpdt {
namespace {

constexpr const char* kIdentifier = "NCCL_COMM_ID";
// Napkin: a message of this size takes a link of 10 GB/s 0.1 ms, as long as its round trips.
constexpr Bytes kBuffer{1 << 20};

// Process 0 listens at the place that the variable names; the others connect to it.
ncclUniqueId identifier(const nccl::Comms& comms, const Torchrun& job) {
  if (job.locals == job.ranks) nccl::stay_on_host();
  static_cast<void>(::setenv(kIdentifier, job.address.c_str(), 0));
  ncclUniqueId id{};
  const ncclResult_t result = comms.api().ncclGetUniqueId(&id);
  if (result == ncclSuccess) return id;
  throw InputError(
      fmt::format("{} = {}: {}", kIdentifier, job.address, nccl::words(comms.api(), result)));
}

}  // namespace

NcclWorld::NcclWorld(const Torchrun& job, const NcclOptions& options)
    : World(place_of(job)),
      comms_(options, job.rank),
      everybody_(comms_.form(identifier(comms_, job), job.ranks, "all ranks")),
      post_(comms_, everybody_, job.ranks, kBuffer) {
  comms_.count([&] { post_.open(); });
}

std::vector<std::string> NcclWorld::gather(std::string_view mine) { return post_.gather(mine); }

void NcclWorld::send(std::int64_t process, std::span<const std::byte> bytes) {
  FPDT_ASSERT(process != place().process);
  post_.send(process, bytes);
}

void NcclWorld::receive(std::int64_t process, std::span<std::byte> bytes) {
  FPDT_ASSERT(process != place().process);
  post_.receive(process, bytes);
}

void NcclWorld::set_deadline(std::chrono::milliseconds deadline) { comms_.set_deadline(deadline); }

void NcclWorld::fail(const Failure& failure) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = failure;
  }
  static_cast<void>(comms_.abort(Error(failure.code, failure.what)));
}

std::optional<Failure> NcclWorld::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

int NcclWorld::leave(int code) noexcept {
  if (const std::optional<Failure> known = failure()) return static_cast<int>(known->code);
  try {
    if (code == 0) gather("");
  } catch (const Error& error) {
    code = static_cast<int>(error.code());
  }
  if (code != 0) fail({static_cast<ExitCode>(code), place().process, "it ended early"});
  return code;
}

Connect NcclWorld::connect() {
  return [this](const RankMain& rank_main) { nccl::serve(comms_, everybody_, *this, rank_main); };
}

Bytes NcclWorld::device_bytes() const { return comms_.device_bytes() + kBuffer; }

}  // namespace fpdt
