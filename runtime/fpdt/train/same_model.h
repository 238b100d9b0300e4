// Whether a Hugging Face directory holds the model that a schedule trains.
#pragma once

#include <string>

#include "fpdt/spec/model.h"

namespace fpdt {

// `path`: its config.json. Throws InputError with each field of the mathematics in which they
// differ.
void require_same_model(const std::string& path, const ModelSpec& model);

}  // namespace fpdt
