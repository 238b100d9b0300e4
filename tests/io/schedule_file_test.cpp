// A schedule file without the question that it answers, or with another one, is refused. What the
// programs do with whole files is tested with them.
#include "fpdt/io/schedule_file.h"

#include <gtest/gtest.h>

#include "fpdt/base/error.h"
#include "fpdt/io/schedule_json.h"

namespace fpdt {
namespace {

std::string refusal(const auto& act) {
  try {
    act();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(ScheduleFile, NeedsAProblem) {
  const std::string path = FPDT_SOURCE_DIR "/tests/golden/fpdt_backward.json";
  EXPECT_NE(refusal([&] { load_schedule_file(path); }).find("has no problem section"),
            std::string::npos);
}

TEST(ScheduleFile, NeedsASoundProblem) {
  Schedule schedule = load_schedule(FPDT_SOURCE_DIR "/tests/golden/fpdt_backward.json");
  schedule.problem = "{\"model\": 1}";
  EXPECT_NE(refusal([&] { prove_schedule_file("a.json", schedule); }).find("model"),
            std::string::npos);
}

}  // namespace
}  // namespace fpdt
