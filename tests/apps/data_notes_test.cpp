// What a run says of its data before its first step.
#include "run/train/data_notes.h"

#include <string>
#include <vector>

#include "fpdt/io/file.h"

#include "command_line.h"

namespace fpdt::test {
namespace {

using Notes = std::vector<std::string>;

class DataNotes : public CommandLine {
 protected:
  // Of so many bytes, in sequences of 50.
  [[nodiscard]] Batches data(std::size_t tokens) const {
    write("data", std::string(tokens, 'x'));
    return {path("data"), 256, 50};
  }
  [[nodiscard]] Notes expected(const std::string& rest) const {
    return {"note: " + path("data") + rest};
  }
};

TEST_F(DataNotes, ARunThatFitsNeedsNone) {
  EXPECT_EQ(notes_on(data(151), TrainingUse{1, 3, 1}), Notes());
  EXPECT_EQ(notes_on(data(301), TrainingUse{1, 3, 2}), Notes());
  EXPECT_EQ(notes_on(data(151), EvaluationUse{4, 2, 3}), Notes());
}

TEST_F(DataNotes, TheDataBeginAgain) {
  EXPECT_EQ(notes_on(data(151), TrainingUse{1, 4, 1}),
            expected(" holds 3 sequences of 50 tokens: step 4 begins again at its start"));
  EXPECT_EQ(notes_on(data(152), TrainingUse{1, 9, 2}),
            expected(" holds 3 sequences of 50 tokens: step 2 begins again at its start, without "
                     "its last 1 token"));
  EXPECT_EQ(notes_on(data(100), TrainingUse{1, 2, 1}),
            expected(" holds 1 sequence of 50 tokens: step 2 begins again at its start, without "
                     "its last 49 tokens"));
}

TEST_F(DataNotes, AResumedRunGoesOnInTheMiddle) {
  Batches batches = data(151);
  batches.seek(100);
  EXPECT_EQ(notes_on(batches, TrainingUse{3, 3, 1}), Notes());
  EXPECT_EQ(notes_on(batches, TrainingUse{3, 4, 1}),
            expected(" holds 3 sequences of 50 tokens: step 4 begins again at its start"));
}

TEST_F(DataNotes, AStepTakesASequenceTwice) {
  EXPECT_EQ(notes_on(data(152), TrainingUse{1, 9, 4}),
            expected(" holds 3 sequences of 50 tokens, and a step takes 4: some occur in it more "
                     "than once"));
}

TEST_F(DataNotes, WhatIsNotEvaluated) {
  EXPECT_EQ(notes_on(data(100), EvaluationUse{2, 2, 1}),
            Notes{"note: an evaluation takes the first 1 sequence of " + path("data") +
                  ": 50 of its 99 labels"});
  EXPECT_EQ(notes_on(data(151), EvaluationUse{3, 2, 3}),
            Notes{"note: step 3, the last, is not evaluated: --evaluate-every 2 does not divide "
                  "it"});
}

TEST_F(DataNotes, HalvesOfTokens) {
  std::string halves;
  for (int i = 0; i < 100; ++i) halves += {static_cast<char>('a' + i % 7), '\0', '\0', '\0'};
  write("data", halves);
  const Batches batches(path("data"), 256, 50, {-1, "", {TokenFormat::u16}});
  EXPECT_EQ(notes_on(batches, TrainingUse{1, 3, 1}),
            Notes{"note: every second token of " + path("data") +
                  " is 0, as if tokens of 32 bits were read as 16; the name of such a file ends in "
                  ".u32"});
  EXPECT_EQ(notes_on(batches, EvaluationUse{2, 2, 3}).size(), 2U);
}

TEST_F(DataNotes, AreSaidBeforeTheFirstStep) {
  const Outcome result =
      run("train plan/schedule.json --data text.txt --steps 65 --evaluate-data text.txt "
          "--evaluate-every 64");
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* note : {"note: text.txt holds 64 sequences of 64 tokens: step 65 begins again",
                           "note: an evaluation takes the first 4 sequences of text.txt: 256 of ",
                           "note: step 65, the last, is not evaluated"}) {
    EXPECT_TRUE(says(result.err, note));
    EXPECT_LT(result.err.find(note), result.err.find("step 1/65"));
  }
}

}  // namespace
}  // namespace fpdt::test
