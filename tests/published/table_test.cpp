// Predictions of published runs: which fit, how fast they are and what they need of a device. Known
// misses are listed with their reason, and one that agrees now must leave the list.
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/io/file.h"

#include "answers.h"
#include "page.h"

namespace fpdt::test {
namespace {

class PublishedTable : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    sources = load_sources();
    predicted = predict_all(sources);
  }

  // `agrees`: of a cell that has the number.
  template <class Agrees>
  void expect(const char* what, const Agrees& agrees) {
    const std::vector<Miss> misses = load_misses();
    for (std::size_t i = 0; i < sources.size(); ++i) {
      for (std::size_t j = 0; j < sources[i].cells.size(); ++j) {
        const Cell& cell = sources[i].cells[j];
        const Predicted& found = predicted[i][j];
        const bool known = find_miss(misses, cell, what) != nullptr;
        EXPECT_EQ(agrees(cell, found), !known)
            << cell.panel << " " << cell.method->name << " " << format_tokens(cell.seq_len) << " "
            << what << ": published " << found.published << ", simulated " << found.mfu << ", "
            << format_bytes(found.usage.device);
      }
    }
  }

  static inline std::vector<Source> sources;
  static inline std::vector<std::vector<Predicted>> predicted;
};

TEST_F(PublishedTable, SaysWhatFits) {
  expect("fits", [](const Cell& cell, const Predicted& found) { return cell.runs == found.fits; });
}

TEST_F(PublishedTable, PredictsMfu) {
  expect("mfu", [](const Cell& cell, const Predicted& found) {
    return !cell.runs || std::abs(found.mfu - found.published) <= kMfuPoints;
  });
}

TEST_F(PublishedTable, PredictsDeviceMemory) {
  expect("memory", [](const Cell& cell, const Predicted& found) {
    const double error = static_cast<double>(found.usage.device.value) - cell.device_bytes;
    return cell.device_bytes == 0 || std::abs(error) <= kMemoryShare * cell.device_bytes;
  });
}

// At every length that both run, FPDT is slower than Ulysses, and faster the longer the sequence.
TEST_F(PublishedTable, HasTheShapeOfTheFigure) {
  const std::vector<Cell>& cells = sources.front().cells;
  for (std::size_t i = 0; i + 1 < cells.size(); ++i) {
    const bool same = cells[i].panel == cells[i + 1].panel;
    if (!same || cells[i].method != cells[i + 1].method) continue;
    EXPECT_LT(predicted[0][i].mfu, predicted[0][i + 1].mfu) << cells[i].panel;
  }
  for (std::size_t i = 0; i < cells.size(); ++i) {
    for (std::size_t j = 0; j < cells.size(); ++j) {
      if (cells[i].panel != cells[j].panel || cells[i].seq_len != cells[j].seq_len) continue;
      if (cells[i].method->name != "fpdt" || cells[j].method->name != "ulysses") continue;
      EXPECT_LT(predicted[0][i].mfu, predicted[0][j].mfu) << cells[i].panel;
    }
  }
}

// Answers have a test of their own.
TEST_F(PublishedTable, IsThePage) {
  const std::string path = fmt::format("{}/docs/results/published.md", FPDT_SOURCE_DIR);
  const std::string text = read_file(path, 1 << 20);
  EXPECT_EQ(text.substr(0, text.find(kAnswersHeading)), page(sources, predicted, load_misses()))
      << "published_page prints the page of today";
}

TEST_F(PublishedTable, IsInTheReadme) {
  const std::string table = readme_table(sources, predicted);
  EXPECT_NE(read_file(FPDT_SOURCE_DIR "/README.md", 1 << 20).find(table), std::string::npos)
      << table;
}

}  // namespace
}  // namespace fpdt::test
