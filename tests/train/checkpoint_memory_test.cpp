// The memory of loading and saving, as the system counts it, is within what
// spec/checkpoint_bytes.h says.
#include <filesystem>
#include <fstream>
#include <malloc.h>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/cpu/backend.h"
#include "fpdt/spec/checkpoint_bytes.h"
#include "fpdt/train/checkpoint.h"

#include "cases.h"
#include "process_worlds.h"

namespace fpdt {
namespace {

Bytes status(std::string_view key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) return Bytes{1024 * std::stoll(line.substr(key.size() + 1))};
  }
  ADD_FAILURE() << "no " << key << " in /proc/self/status";
  return {};
}

// Together: what `work` takes at its peak, in all processes.
template <class Work>
Bytes taken(World& world, Work work) {
  world.gather("");
  ::malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";  // forgets the peak so far
  const Bytes before = status("VmRSS");
  world.gather("");
  work();
  return status("VmHWM") - before;
}

// Arenas are resident from the beginning, and not addressed by the host, as on a GPU.
RankOptions resident(World& world, const Connect& connect) {
  RankOptions options = in_process(world, connect);
  options.make_backend = [](Communicator& communicator) {
    return std::make_unique<CpuBackend>(communicator, CpuOptions{1, Populate::yes});
  };
  return options;
}

// What decides the memory: a tensor of more than one piece, or the number of tensors.
struct MemoryShape {
  std::string name;
  ModelSpec model;
  Storage storage = Storage::f32;
};
void PrintTo(const MemoryShape& shape, std::ostream* out) { *out << shape.name; }

MemoryShape large_embedding() {
  ModelSpec model = tiny_llama();
  model.vocabulary = 600'000;
  return {"embedding", model, Storage::bf16};
}

MemoryShape large_layer(const std::string& name, ModelSpec model, Storage storage) {
  model.layers = 1;
  model.feed_forward = 300'000;
  return {name, model, storage};
}

MemoryShape many_layers() {
  ModelSpec model = tiny_llama();
  model.layers = 300;
  return {"names", model, Storage::bf16};
}

class CheckpointMemory : public testing::TestWithParam<MemoryShape> {
 protected:
  // The system takes back what is freed, so that nothing hides what is allocated next.
  static void SetUpTestSuite() {
    constexpr int kLarge = 1 << 17;
    ::mallopt(M_MMAP_THRESHOLD, kLarge);
    ::mallopt(M_TRIM_THRESHOLD, kLarge);
  }
};

TEST_P(CheckpointMemory, IsWithinThePrediction) {
  const ModelSpec& model = GetParam().model;
  const std::string path =
      testing::TempDir() + fmt::format("fpdt_memory_{}_{}", GetParam().name, getpid());
  for (const std::int64_t processes : {1, 2}) {
    std::filesystem::remove_all(path);
    Case one = make_case(model, processes, 16, 16);
    one.strategy.storage = GetParam().storage;
    const Bytes load = processes * loading_bytes(model);
    const Bytes save = processes * saving_bytes(model) + reordering_bytes(model);
    const auto errors = run_processes(processes, [&](World& world, const Connect& connect) {
      Rig rig(one, resident(world, connect));
      rig.trainer.set_parameters(initial_parameters(1));
      const Bytes saved = taken(world, [&] { save_checkpoint(path, rig.trainer, {}); });
      const Bytes loaded = taken(world, [&] { load_checkpoint(path, rig.trainer); });
      const Bytes initialized = taken(world, [&] { load_weights(path, rig.trainer); });
      EXPECT_LE(saved, save);
      EXPECT_LE(loaded, load);
      EXPECT_LE(initialized, load);
      // Two processes may reach their peaks at different times.
      if (processes == 1) {
        EXPECT_GE(2 * loaded, load) << "the prediction is far too high";
      }
    });
    for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
  }
  std::filesystem::remove_all(path);
}

INSTANTIATE_TEST_SUITE_P(Models, CheckpointMemory,
                         testing::Values(large_embedding(),
                                         large_layer("llama", tiny_llama(), Storage::f32),
                                         large_layer("gpt2", tiny_gpt(), Storage::bf16),
                                         large_layer("neox", tiny_neox(), Storage::bf16),
                                         many_layers()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace fpdt
