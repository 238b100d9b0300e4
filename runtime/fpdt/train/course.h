// What decides the course of a training from a step on, besides weights, moments and the step: the
// data and its reading, the learning rate, the sequences of a step, the optimizer. A checkpoint
// records it, so that a resumed run continues as before unless its user allows a change.
//
// The content of files counts, not their names. A rate that depends on the length of the run
// (decay) is recorded with the length it was resolved for, so that a longer run does not change it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/spec/strategy.h"
#include "fpdt/train/learning_rate.h"

namespace fpdt {

struct Course {
  std::string data;         // identity_of the tokens
  std::string data_format;  // a TokenFormat
  std::int64_t document_separator = -1;
  std::string loss_mask;  // its identity_of; "": none
  std::int64_t seed = 1;
  LearningRate rate;           // steps: where the minimum is reached; 0 without one
  std::int64_t seq_len = 0;    // tokens of a sequence
  std::int64_t sequences = 0;  // of a step
  OptimizerSpec optimizer;
};

// Bytes and checksum of a file, for comparison and for people.
std::string identity_of(const std::string& path);

// One JSON object.
std::string print_course(const Course& course);
// InputError when the text is no course.
Course parse_course(std::string_view text, std::string_view file_name);

// A line for each difference, with both values; that of the data comes first.
std::vector<std::string> differences(const Course& saved, const Course& now);

}  // namespace fpdt
