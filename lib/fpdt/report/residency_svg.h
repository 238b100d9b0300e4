// A picture of layers and chunks: what becomes of the input and the attention output of each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fpdt/spec/model.h"
#include "fpdt/spec/residency.h"

namespace fpdt {

struct ResidencyPicture {
  std::string title;
  std::vector<std::string> lines;  // below the title
  std::vector<LayerResidency> layers;
  std::int64_t chunk_tokens = 1;
  std::int64_t tokens = 1;         // of the sequence; the last chunk may have fewer than the others
  std::vector<std::string> kinds;  // names; empty where all layers are of one kind
};

// `width`: of the file in pixels.
std::string residency_svg(const ResidencyPicture& picture, double width);

}  // namespace fpdt
