// Checks that the trainer feeds each input what the schedule assumes it holds.
//
// The verifier proves that each op reads tokens, labels and document starts from inputs of the
// right purpose, and that tables are as large as the ops say. It does not know the model, nor what
// the trainer puts into each input. This check knows both.
#pragma once

#include <string_view>

#include "fpdt/schedule/schedule.h"
#include "fpdt/spec/model.h"

namespace fpdt {

// The names of the inputs that the trainer feeds. Those of tokens, labels and document starts apply
// to files of format 2; later ones name their inputs in their feeds.
inline constexpr std::string_view kStepInput = "step_input";
inline constexpr std::string_view kTokensInput = "tokens_input";
inline constexpr std::string_view kLabelsInput = "labels_input";
inline constexpr std::string_view kDocumentsInput = "documents_input";

// The name of the input that holds tokens, labels or document starts; empty: none is fed with them.
std::string_view input_name(const Schedule& schedule, Holds holds);

// Throws InputError (R105) when an input has another name, serves another purpose than its name
// says, or an embedding gives its kernels bounds other than the model's.
void require_feeds(const Schedule& schedule, const ModelSpec& model);

}  // namespace fpdt
