// Finds the most slots that are in use at once, and numbers their versions.
#include "fpdt/plan/lowering/stack.h"

#include <algorithm>

#include "fpdt/base/math.h"

namespace fpdt {

Stack::Stack(const std::vector<LayerPlace>& places, const Contents& contents)
    : contents_(contents), base_(contents.outputs.size()), first_(contents.outputs.size()) {
  const std::int64_t input = contents.input;
  for (const Outputs& outputs : contents.outputs) {
    repeated_ = std::max(repeated_, outputs.repeated);
  }
  std::int64_t stored = 0;
  for (std::size_t layer = 0; layer < places.size(); ++layer) {
    const LayerPlace& at = places[layer];
    Outputs outputs;
    if (!contents.outputs.empty()) {
      outputs = contents.outputs[at.layer_class];
      if (layer == 0 || places[layer - 1].layer_class != at.layer_class) {
        base_[at.layer_class] = stored;
        first_[at.layer_class] = static_cast<std::int64_t>(layer);
      }
    }
    stored += outputs.stored;
    const std::int64_t segment = at.segment - contents.first;
    if (!at.last() || segment < 0 || segment >= contents.count) continue;
    // In forward, or with the gradient of the next input.
    std::int64_t most = std::min(segment + 2, contents.count) * input;
    if (at.length > 1) most = std::max(most, (segment + at.length + 1) * input);
    if (at.length > 1 || outputs.repeated > 0) {
      const std::int64_t inside = (at.length - 1) * stride() + outputs.repeated;
      most = std::max(most, (segment + gap()) * input + inside);
    }
    slots_ = std::max(slots_, most + stored);
  }
}

Version Stack::at(std::int64_t slot, std::int64_t turn, std::int64_t turns) const {
  const std::int64_t step = contents_.input + turns * slots_;
  const std::int64_t all = contents_.count * (1 + turns_of_backward()) + 2;  // in a micro-batch
  return Version::at(slot + turn * slots_ - contents_.first * step, 0, mul(all, slots_), step);
}

// After those of forward, and from the last segment on.
Version Stack::in_backward(std::int64_t slot, std::int64_t turn) const {
  const std::int64_t each = turns_of_backward();
  return at(slot, contents_.count + 1 + (contents_.count - 1) * each + turn, -each);
}

Version Stack::input(const LayerPlace& at, Visit visit) const {
  if (at.first()) return this->at(0, 1, 1);
  const bool forward = visit == Visit::forward;
  const std::int64_t stride = forward ? contents_.input : this->stride();
  const std::int64_t first = forward ? 2 * contents_.input : gap() * contents_.input + repeated_;
  Version made = forward ? this->at(first - stride, 1, 1) : in_backward(first - stride, 0);
  made.place = stride;
  return made;
}

Version Stack::gradient(const LayerPlace& at) const {
  if (at.first()) return in_backward(0, 1);
  Version made = input(at, Visit::backward);
  made.offset += slots_;
  return made;
}

Version Stack::repeated() const {
  Version made = in_backward(gap() * contents_.input, 0);
  made.place = stride();
  return made;
}

// The slots of layer 0 are the last ones.
Version Stack::stored(std::size_t layer_class) const {
  const std::int64_t each = contents_.outputs[layer_class].stored;
  const std::int64_t before = base_[layer_class] - first_[layer_class] * each;
  Version made = at(slots_ - before - each, 1, 1);
  made.segment -= contents_.input;
  made.layer = -each;
  return made;
}

}  // namespace fpdt
