// What the trainer promises the kernels: that what it feeds is what a schedule takes it for.
//
// The verifier proves that each op reads tokens, labels and document starts from inputs of one
// purpose, and that tables are as large as the ops say. It knows neither which input the trainer
// fills with what, nor the model; this knows both.
#pragma once

#include <string_view>

#include "fpdt/schedule/schedule.h"
#include "fpdt/spec/model.h"

namespace fpdt {

// The names under which the trainer feeds a step.
inline constexpr std::string_view kStepInput = "step_input";
inline constexpr std::string_view kTokensInput = "tokens_input";
inline constexpr std::string_view kLabelsInput = "labels_input";
inline constexpr std::string_view kDocumentsInput = "documents_input";

// InputError (R105) when an input has another name, serves another purpose than its name says, or
// an embedding promises its kernels other bounds than those of the model.
void require_feeds(const Schedule& schedule, const ModelSpec& model);

}  // namespace fpdt
