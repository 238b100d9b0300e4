// Reads the variables.
#include "fpdt/nccl/torchrun.h"

#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/base/math.h"

namespace fpdt {
namespace {

std::string text_of(const char* name) {
  const char* const text = std::getenv(name);
  if (text != nullptr && *text != '\0') return text;
  throw InputError(fmt::format(
      "{} is not set: --communicator nccl needs a launcher; start one process for each GPU, as "
      "with "
      "\"torchrun --no_python --nproc_per_node GPUS fpdt-run ...\" or \"mpirun --bind-to none -n "
      "GPUS fpdt-run ...\"",
      name));
}

std::int64_t number_of(const char* name, std::int64_t least, std::int64_t most) {
  const std::string text = text_of(name);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most) {
    throw InputError(
        fmt::format("{}: expected a number from {} to {}, found \"{}\"", name, least, most, text));
  }
  return value;
}

}  // namespace

bool is_launched_by_torchrun() { return std::getenv("RANK") != nullptr; }

Torchrun torchrun() {
  constexpr std::int64_t kMost = 1 << 20;
  constexpr std::int64_t kPortMost = 65535;
  Torchrun job;
  static_cast<void>(text_of("RANK"));  // who was not launched lacks it, and hears of it first
  job.ranks = number_of("WORLD_SIZE", 1, kMost);
  job.rank = number_of("RANK", 0, job.ranks - 1);
  job.locals = number_of("LOCAL_WORLD_SIZE", 1, job.ranks);
  job.local = number_of("LOCAL_RANK", 0, job.locals - 1);
  const char* const given = std::getenv("NCCL_COMM_ID");
  job.address = given != nullptr ? std::string(given)
                                 : fmt::format("{}:{}", text_of("MASTER_ADDR"),
                                               number_of("MASTER_PORT", 1, kPortMost - 1) + 1);
  return job;
}

Place place_of(const Torchrun& job) {
  Place place;
  place.ranks = place.processes = job.ranks;
  place.present = {job.rank};
  place.process = job.rank;
  place.node = job.rank / job.locals;
  place.nodes = div_ceil(job.ranks, job.locals);
  place.local = job.local;
  place.locals = job.locals;
  return place;
}

}  // namespace fpdt
