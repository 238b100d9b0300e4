// Where libraries are searched, and the errors when they are missing.
#include "fpdt/runtime/library.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "fpdt/base/error.h"

extern "C" int fpdt_answer(int question);  // declared as in a header, but linked nowhere

namespace fpdt {
namespace {

constexpr const char* kFile = "libfpdt_loaded.so";

WantedLibrary answers(const std::string& folders) { return {"Answers", kFile, "7", folders}; }

struct Answers {
  Library library;
  FPDT_FROM_LIBRARY(fpdt_answer);
};

std::string refusal(const WantedLibrary& wanted) {
  try {
    const Library library(wanted);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Provides an empty folder, and restores LD_LIBRARY_PATH.
class LibraryTest : public testing::Test {
 protected:
  LibraryTest() {
    const char* const path = std::getenv("LD_LIBRARY_PATH");
    if (path != nullptr) before_ = path;
    ::unsetenv("LD_LIBRARY_PATH");
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~LibraryTest() override {
    std::filesystem::remove_all(folder_);
    if (before_) ::setenv("LD_LIBRARY_PATH", before_->c_str(), 1);
  }
  const std::string folder_ = testing::TempDir() + "fpdt_library_" +
                              testing::UnitTest::GetInstance()->current_test_info()->name();

 private:
  std::optional<std::string> before_;
};

TEST_F(LibraryTest, IsFoundWhereTheBuildSawIt) {
  const Answers table{.library = Library(answers("/nowhere:" FPDT_LOADED_FOLDER))};
  EXPECT_EQ(table.fpdt_answer(41), 42);
}

TEST_F(LibraryTest, TheEnvironmentGoesFirst) {
  std::ofstream(folder_ + "/" + kFile) << "no library\n";
  ::setenv("LD_LIBRARY_PATH", FPDT_LOADED_FOLDER, 1);
  EXPECT_EQ(Answers{.library = Library(answers(folder_))}.fpdt_answer(1), 2);
}

// A file that is not a library is skipped, and named if there is no other.
TEST_F(LibraryTest, ABrokenFileIsNamed) {
  std::ofstream(folder_ + "/" + kFile) << "no library\n";
  EXPECT_EQ(Answers{.library = Library(answers(folder_ + ":" FPDT_LOADED_FOLDER))}.fpdt_answer(1),
            2);
  const std::string text = refusal({"Answers", "libfpdt_broken.so", "7", folder_});
  std::ofstream(folder_ + "/libfpdt_broken.so") << "no library\n";
  EXPECT_FALSE(says(text, "file too short")) << text;
  const std::string broken = refusal({"Answers", "libfpdt_broken.so", "7", folder_});
  EXPECT_TRUE(says(broken, folder_ + "/libfpdt_broken.so: file too short")) << broken;
}

TEST_F(LibraryTest, OneLineSaysWhatIsWantedAndWhereItWasLookedFor) {
  ::setenv("LD_LIBRARY_PATH", "/first::/second", 1);
  const std::string text = refusal({"Answers", "libfpdt_nowhere.so.7", "7.1 or later", "/third"});
  EXPECT_TRUE(says(text, "Answers 7.1 or later could not be loaded")) << text;
  EXPECT_TRUE(says(text, "libfpdt_nowhere.so.7 in /first, /second, /third and where the system"))
      << text;
  EXPECT_TRUE(says(text, "LD_LIBRARY_PATH")) << text;
  EXPECT_FALSE(says(text, "\n")) << text;
}

TEST_F(LibraryTest, AFunctionThatIsMissingIsNamed) {
  const Library library(answers(FPDT_LOADED_FOLDER));
  try {
    static_cast<void>(library.find("fpdt_question"));
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_TRUE(says(error.what(), "libfpdt_loaded.so has no function fpdt_question"))
        << error.what();
  }
}

TEST_F(LibraryTest, NoneHasNoFunctions) { EXPECT_EQ(Answers{}.fpdt_answer, nullptr); }

}  // namespace
}  // namespace fpdt
