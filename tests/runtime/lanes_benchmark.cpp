// The cost of a lane: one thread launches ops that do nothing. Targets: 0.5 us for an op in a lane,
// 3 us for an edge between lanes (there and back is two edges).
#include <vector>

#include <benchmark/benchmark.h>

#include "fpdt/cpu/lanes.h"

namespace fpdt {
namespace {

constexpr std::int64_t kOps = 20000;

void run_nothing(std::int32_t, const Op&, std::span<const View>) {}
void ignore(std::exception_ptr) {}

void one_lane(benchmark::State& state) {
  const Op op{"noop", {}, Fill{}, {}};
  const std::vector<View> views(3);
  Lanes lanes({.lanes = 1, .views = 4, .waits = 2, .spin = state.range(0) != 0}, run_nothing,
              ignore);
  for (auto _ : state) {
    for (std::int64_t i = 0; i < kOps; ++i) lanes.launch({&op, 0, views, {}, nullptr});
    lanes.synchronise();
  }
  state.SetItemsProcessed(state.iterations() * kOps);
}
BENCHMARK(one_lane)->ArgName("spin")->Arg(0)->Arg(1)->UseRealTime();

void lane_to_lane(benchmark::State& state) {
  const Op op{"noop", {}, Fill{}, {}};
  const std::vector<View> views(3);
  Lanes lanes({.lanes = 2, .views = 4, .waits = 2, .spin = state.range(0) != 0}, run_nothing,
              ignore);
  for (auto _ : state) {
    for (std::int32_t i = 0; i < kOps / 2; ++i) {
      const std::vector<Event> back =
          i == 0 ? std::vector<Event>{} : std::vector<Event>{{1, i - 1}};
      const std::vector<Event> there{{0, i}};
      lanes.launch({&op, 0, views, back, nullptr});
      lanes.launch({&op, 1, views, there, nullptr});
    }
    lanes.synchronise();
  }
  state.SetItemsProcessed(state.iterations() * kOps);
}
BENCHMARK(lane_to_lane)->ArgName("spin")->Arg(0)->Arg(1)->UseRealTime();

}  // namespace
}  // namespace fpdt

BENCHMARK_MAIN();
