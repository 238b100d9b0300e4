// Derives fates from segments, thresholds and fractions.
#include "fpdt/spec/residency.h"

namespace fpdt {
namespace {

// The first chunks again, the last ones on the device. Rows that norms take at once are one part.
std::vector<ChunkRun> runs(const Geometry& shape, const LayerClass& choice, TensorClass tensor,
                           std::int64_t again) {
  const Geometry::Parts parts = shape.parts(choice, tensor);
  const std::int64_t stored = shape.chunks - again;
  const std::int64_t device = parts.all == 0 ? 0 : stored * parts.kept / parts.all;
  std::vector<ChunkRun> made;
  for (const ChunkRun run : {ChunkRun{again, Fate::again}, ChunkRun{stored - device, Fate::host},
                             ChunkRun{device, Fate::device}}) {
    if (run.chunks > 0) made.push_back(run);
  }
  return made;
}

}  // namespace

std::vector<LayerResidency> residencies(const Problem& problem, const Strategy& strategy) {
  const Geometry shape = geometry(problem, strategy);
  std::vector<LayerResidency> all;
  for (const LayerPlace& place : layer_places(strategy, problem.model.layers)) {
    const LayerClass& choice = strategy.layer_classes[place.layer_class];
    all.push_back(
        {place, runs(shape, choice, TensorClass::layer_input, place.first() ? 0 : shape.chunks),
         runs(shape, choice, TensorClass::attention_output, choice.repeated(shape.chunks)),
         problem.model.kind_at(std::ssize(all))});
  }
  return all;
}

std::int64_t chunks_with(const std::vector<ChunkRun>& runs, Fate fate) {
  std::int64_t chunks = 0;
  for (const ChunkRun& run : runs) chunks += run.fate == fate ? run.chunks : 0;
  return chunks;
}

}  // namespace fpdt
