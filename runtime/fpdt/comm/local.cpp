// One process agrees with itself.
#include "fpdt/comm/local.h"

#include <numeric>

#include "fpdt/base/assert.h"
#include "fpdt/comm/solo.h"
#include "fpdt/comm/thread.h"

namespace fpdt {
namespace {

Place all_ranks(std::int64_t ranks) {
  Place place;
  place.ranks = ranks;
  place.present.resize(static_cast<std::size_t>(ranks));
  std::iota(place.present.begin(), place.present.end(), 0);
  return place;
}

Place one_rank(std::int64_t rank, std::int64_t ranks) {
  FPDT_ASSERT(rank >= 0 && rank < ranks);
  Place place;
  place.ranks = ranks;
  place.present = {rank};
  return place;
}

}  // namespace

LocalWorld::LocalWorld(std::int64_t ranks) : World(all_ranks(ranks)) {}

LocalWorld::LocalWorld(std::int64_t rank, std::int64_t ranks) : World(one_rank(rank, ranks)) {}

std::vector<std::string> LocalWorld::gather(std::string_view mine) { return {std::string(mine)}; }

void LocalWorld::send(std::int64_t, std::span<const std::byte>) {
  FPDT_ASSERT(false && "a single process sends nothing");
}

void LocalWorld::receive(std::int64_t, std::span<std::byte>) {
  FPDT_ASSERT(false && "a single process receives nothing");
}

Connect connect_local(const World& world, std::chrono::milliseconds deadline) {
  FPDT_ASSERT(world.place().processes == 1);
  return [&world, deadline](const RankMain& rank_main) {
    const std::int64_t ranks = world.place().ranks;
    if (world.complete()) return run_ranks(ranks, rank_main, {deadline});
    SoloCommunicator alone(world.place().present.front(), ranks);
    rank_main(alone);
  };
}

}  // namespace fpdt
