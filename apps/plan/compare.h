// The curves of `fpdt-plan compare` over lengths. A point of a curve is the row of its length.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/plan/answers/comparison.h"
#include "fpdt/report/curve_svg.h"

#include "plan/figures.h"
#include "plan/question.h"

namespace fpdt {

// The lengths of a flag, such as "128K,1M"; of an empty one, doubling from 128K to the first that
// does not fit.
std::vector<std::int64_t> compared_lengths(const Question& question, const std::string& flag);
// `counted`: the pairs of attention that count in MFU, "causal" or "full".
std::string curves_text(const std::vector<ComparedCurve>& curves,
                        const std::vector<std::int64_t>& lengths, const std::string& counted);
Json curves_json(const std::vector<ComparedCurve>& curves);
CurvePicture curves_picture(const Question& question, const std::vector<ComparedCurve>& curves,
                            const std::vector<std::int64_t>& lengths, const std::string& counted);

}  // namespace fpdt
