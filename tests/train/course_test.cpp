// The course in a checkpoint, and which differences count as changes.
#include "fpdt/train/course.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/base/error.h"
#include "fpdt/io/file.h"

namespace fpdt {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Course some_course() {
  Course course;
  course.data = "4106 bytes, checksum 0123456789abcdef";
  course.data_format = "u16";
  course.document_separator = 7;
  course.rate = {0.1 + 0.2, 10, 1e-5, 400};
  course.seq_len = 64;
  course.sequences = 2;
  course.optimizer.clip = 0;
  return course;
}

TEST(Course, IsReadAsItWasWritten) {
  const Course course = some_course();
  const Course again = parse_course(print_course(course), "trainer.json");
  EXPECT_THAT(differences(course, again), IsEmpty());
  EXPECT_EQ(again.rate.peak, course.rate.peak);
  EXPECT_EQ(again.data, course.data);
  EXPECT_THROW(parse_course("{}", "trainer.json"), InputError);
  EXPECT_THROW(parse_course(R"({"data": 3})", "trainer.json"), InputError);
}

TEST(Course, DifferencesNameBothValues) {
  Course other = some_course();
  other.rate.peak = 2e-3;
  other.loss_mask = "9 bytes";
  EXPECT_THAT(differences(some_course(), other),
              ElementsAre("loss_mask: \"\" in the checkpoint, \"9 bytes\" now",
                          "learning_rate: 0.30000000000000004 in the checkpoint, 0.002 now"));
}

TEST(Course, AFileIsItsContent) {
  const std::string path = testing::TempDir() + fmt::format("fpdt_course_{}", getpid());
  const std::string text(3 << 20, 'a');
  write_file_atomically(path, text);
  const std::string first = identity_of(path);
  EXPECT_TRUE(first.starts_with("3145728 bytes, checksum ")) << first;
  write_file_atomically(path, text);
  EXPECT_EQ(identity_of(path), first);
  write_file_atomically(path, text.substr(1) + "b");
  EXPECT_NE(identity_of(path), first);
}

}  // namespace
}  // namespace fpdt
