// What answers of fpdt-plan say beside their numbers, and the peak and the levers of explain.
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/base/units.h"

#include "command_line.h"

namespace fpdt::test {
namespace {

constexpr std::string_view kTinyQuestion = "--model model.yaml --cluster timed.yaml";

class Words : public CommandLine {};
class Explain : public CommandLine {};

// A machine that fpdt can plan for but not run on, with the reason, and without an advice to train.
TEST_F(Words, SaysThatNothingRunsThere) {
  ASSERT_EQ(shell("sed 's/^source:/plan_only: there is no backend\\n&/' timed.yaml >no.yaml").code,
            0);
  const std::string question = "search --model model.yaml --cluster no.yaml --seq-len 512 ";
  const Outcome found = plan(question + "--out-dir out");
  EXPECT_TRUE(says(found.out, "\nplan only  there is no backend\n"));
  EXPECT_TRUE(says(found.out, "draw the step: "));
  EXPECT_FALSE(says(found.out, "train with it: "));
  EXPECT_EQ(nlohmann::json::parse(plan(question + "--json").out).at("plan_only"),
            "there is no backend");
  EXPECT_EQ(
      nlohmann::json::parse(plan(fmt::format("search {} --seq-len 512 --json", kTinyQuestion)).out)
          .at("plan_only"),
      nullptr);
  EXPECT_TRUE(
      says(plan(question + "--device-budget 1KiB").out, "\nplan only  there is no backend\n"));
  EXPECT_TRUE(says(plan("list clusters").out, "; plan only: "));
  std::int64_t known = 0;
  const nlohmann::json rows =
      nlohmann::json::parse(plan("list clusters --json").out).at("clusters");
  for (const nlohmann::json& row : rows) {
    if (row.at("plan_only").is_string()) ++known;
  }
  EXPECT_EQ(known, 2);
}

// A model with experts has what tokens would send, in words and numbers that agree, and no rows of
// methods that do not serve it.
TEST_F(Words, ExpertsComeToTheTokens) {
  ASSERT_EQ(shell("sed 's/^feed_forward:.*/&\\nexperts: 4\\nactive_experts: 2/; "
                  "s/12112/19152/' model.yaml >experts.yaml")
                .code,
            0);
  const std::string question = "--model experts.yaml --cluster timed.yaml --seq-len 512";
  const Outcome found = plan("search " + question);
  ASSERT_EQ(found.code, 0) << found.err;
  EXPECT_TRUE(says(found.out, "\nlayers     a token takes 2 of 4 experts\n"));
  const nlohmann::json answer = nlohmann::json::parse(plan("search --json " + question).out);
  const nlohmann::json& sent = answer.at("prediction").at("experts");
  EXPECT_EQ(sent.at("tokens_per_rank"), 256);
  EXPECT_EQ(answer.at("model").at("active_parameters"), 19152 - 2 * 2 * 3 * 24 * 16);
  const auto bytes = [&](const char* key) {
    return format_bytes(Bytes{sent.at(key).get<std::int64_t>()});
  };
  EXPECT_TRUE(says(found.out, "experts    gathered: " + bytes("gathered_bytes")));
  // A sweep draws the numbers of the answers.
  const Outcome swept = plan(
      "sweep --over seq-len --values 256,512 --model experts.yaml --cluster timed.yaml --json "
      "--draw c.svg");
  ASSERT_EQ(swept.code, 0) << swept.err;
  const nlohmann::json points = nlohmann::json::parse(swept.out).at("points");
  EXPECT_EQ(points.at(1).at("experts"), sent);
  EXPECT_TRUE(says(contents("c.svg"), "Sent by a rank in a step"));
  for (const nlohmann::json& point : points) {
    for (const char* key : {"gathered_bytes", "token_bytes"}) {
      const Bytes drawn{point.at("experts").at(key).get<std::int64_t>()};
      EXPECT_TRUE(says(contents("c.svg"), format_bytes(drawn))) << key;
    }
  }
  const Outcome compared = plan("compare " + question);
  EXPECT_EQ(compared.code, 0) << compared.err;
  EXPECT_TRUE(says(compared.err, "Megatron-SP has no row: its ranks share products"));
  EXPECT_TRUE(says(compared.out, "\nexperts, searched: gathered: " + bytes("gathered_bytes")));
  EXPECT_TRUE(says(compared.out, "\nLSS (published) "));
  EXPECT_FALSE(says(compared.out, "\nMegatron-SP"));
  const Outcome refused = plan("search --method megatron " + question);
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(says(refused.err, "the experts of tiny are not cut"));
}

// One word for each number of bytes: the budget, the arena, what is live, and what lies outside.
// MFU as papers count it comes after the causal one, under that name.
TEST_F(Words, BytesAndMfuHaveOneNameEach) {
  const std::string question =
      fmt::format("search {} --seq-len 512 --device-budget 1MiB --out-dir out ", kTinyQuestion);
  const Outcome found = plan(question);
  const nlohmann::json answer = nlohmann::json::parse(plan(question + "--json").out);
  const nlohmann::json& bytes = answer.at("prediction").at("device_bytes");
  const std::int64_t arena = answer.at("prediction").at("device_peak_bytes");
  EXPECT_TRUE(says(found.out, " of 1.00 MiB budget per GPU\n"));
  EXPECT_TRUE(says(found.out, " budget per node, "));
  EXPECT_TRUE(says(found.out,
                   fmt::format("\n           arena {}, of which at most {} live at once: ",
                               format_bytes(Bytes{arena}),
                               format_bytes(Bytes{arena - bytes.at("free").get<std::int64_t>()}))));
  EXPECT_TRUE(says(found.out, ") as published papers count\n"));
  EXPECT_TRUE(says(contents("out/plan.yaml"), " % as published papers count).\n"));
  EXPECT_TRUE(says(contents("out/plan.yaml"), " % causal ("));
  const Outcome swept =
      plan(fmt::format("sweep {} --over seq-len --values 256,512", kTinyQuestion));
  EXPECT_TRUE(says(swept.out, "causal / papers")) << swept.err;
}

// What an answer shows beside the best can be had, by its number or by its settings.
TEST_F(Words, AnotherPlanCanBeTaken) {
  const std::string question =
      fmt::format("search {} --seq-len 512 --device-budget 1MiB ", kTinyQuestion);
  const nlohmann::json front = nlohmann::json::parse(plan(question + "--json").out).at("front");
  ASSERT_GT(front.size(), 1U);
  EXPECT_TRUE(says(plan(question).out, "  --take  chunks, layers\n"));
  for (const std::size_t i : {std::size_t{0}, front.size() - 1}) {
    const Outcome taken = plan(fmt::format("{}--json --take {}", question, i + 1));
    ASSERT_EQ(taken.code, 0) << taken.err;
    const nlohmann::json answer = nlohmann::json::parse(taken.out);
    EXPECT_EQ(answer.at("strategy").at("settings"), front[i].at("settings"));
    EXPECT_EQ(answer.at("prediction").at("step_seconds"), front[i].at("step_seconds"));
    EXPECT_EQ(answer.at("front"), front) << "the numbers stay";
  }
  const Outcome none = plan(fmt::format("{}--take {}", question, front.size() + 1));
  EXPECT_EQ(none.code, 2);
  EXPECT_TRUE(says(none.err, "are on the front of this question: 1 to "));
}

TEST_F(Words, SaysWhenStatesFillAMemory) {
  const Outcome large =
      plan("search --model llama3-8b --cluster rtx4090-24g-x1 --method fpdt --seq-len 64K");
  EXPECT_EQ(large.code, 3);
  EXPECT_TRUE(says(large.out, "116 GiB of it are states of the model at any sequence length"));
  EXPECT_TRUE(says(large.out,
                   "\nnot here   LoRA, which has nearly none of a rank's 29.9 GiB of gradients and "
                   "89.7 GiB of optimizer\n"))
      << "as much as four bytes and twelve of each parameter";
  EXPECT_TRUE(says(large.out, "moments of 8 bits, which take 44.9 GiB less there\n"));
  // Most of what this tiny model lacks room for are activations.
  const std::string tiny = "search --model model.yaml --cluster timed.yaml --seq-len 64 ";
  const Outcome small = plan(tiny + "--device-budget 40KiB");
  // The search does not try every strategy.
  EXPECT_TRUE(says(small.out, "device memory: the least found needs"));
  EXPECT_FALSE(says(small.out, "states of the model"));
  const nlohmann::json short_of =
      nlohmann::json::parse(plan(tiny + "--device-budget 40KiB --json").out);
  const nlohmann::json& states = short_of.at("state_bytes");
  const nlohmann::json& others = short_of.at("not_offered");
  EXPECT_GE(others.at(0).at("saves_at_most_bytes"), 16 * 12112 / 2) << "of two ranks";
  EXPECT_GE(others.at(1).at("saves_at_most_bytes"), 6 * 12112 / 2);
  EXPECT_LT(others.at(1).at("saves_at_most_bytes"), others.at(0).at("saves_at_most_bytes"));
  // Of two ranks: those of embedding and head in bf16 and f32. The others go to the host first.
  EXPECT_GT(states["parameters"], 0);
  EXPECT_LT(states["parameters"], 12112);
  EXPECT_GT(states["gradients"], states["parameters"]);
  EXPECT_LT(states["gradients"], 2 * 12112);
  EXPECT_EQ(states["optimizer"], 0);
}

// A step of days is easily read as one of hours.
TEST_F(Words, SaysWhenAStepTakesDays) {
  ASSERT_EQ(shell("sed 's/op_seconds: .*/op_seconds: 2000/' timed.yaml >slow.yaml").code, 0);
  const std::string question = "search --model model.yaml --seq-len 512 --cluster ";
  const Outcome slow = plan(question + "slow.yaml");
  EXPECT_EQ(slow.code, 0) << slow.err;
  EXPECT_TRUE(says(slow.out, "a step takes ")) << slow.out;
  EXPECT_TRUE(says(slow.out, ": 100 steps take "));
  EXPECT_FALSE(says(plan(question + "timed.yaml").out, "a step takes "));
}

// Text, JSON and picture say the same of inputs and attention outputs.
TEST_F(Explain, SaysWhatBecomesOfInputsAndOutputs) {
  write("divided.yaml",
        "tiles: {chunk_tokens: 64}\n"
        "layer_classes:\n  - recompute: keep_attention\n    first_stored_chunk: 3\n"
        "    keep: {layer_input: 0.25, attention_output: 0.4}\n");
  const std::string question =
      fmt::format("explain {} --seq-len 512 --strategy divided.yaml ", kTinyQuestion);
  const Outcome text = plan(question + "--draw what.svg");
  ASSERT_EQ(text.code, 0) << text.err;
  const nlohmann::json layers =
      nlohmann::json::parse(plan(question + "--json").out).at("residency");
  const std::string svg = contents("what.svg");
  std::int64_t number = 0;
  std::int64_t divided = 0;  // tensors of which chunks have several fates
  for (const nlohmann::json& layer : layers) {
    for (const char* tensor : {"input", "attention_output"}) {
      std::int64_t chunk = 0;
      for (const nlohmann::json& run : layer.at(tensor)) {
        const std::int64_t end = chunk + run.at("chunks").get<std::int64_t>();
        if (run.at("fate") != "again") {
          EXPECT_TRUE(says(svg, fmt::format("layer {}, chunks {} to {}: {}<", number, chunk,
                                            end - 1, run.at("fate").get<std::string>())));
        }
        if (layer.at(tensor).size() > 1) {
          ++divided;
          EXPECT_TRUE(
              says(text.out, fmt::format("{} {}", end - chunk, run.at("fate").get<std::string>())));
        }
        chunk = end;
      }
      EXPECT_EQ(chunk, 8);
    }
    ++number;
  }
  EXPECT_EQ(number, 2);
  EXPECT_EQ(divided, 2 * (2 + 3)) << "parts of inputs and of outputs";
  EXPECT_TRUE(says(text.out, "by chunks (8 of 64 tokens)"));
  const Outcome html = plan(question + "--draw what.html");
  EXPECT_EQ(html.code, 2);
  EXPECT_TRUE(says(html.err, "expected a file that ends in .svg or .png, such as what.svg"));
  const Outcome none = plan(question + "--width 900");
  EXPECT_EQ(none.code, 2);
  EXPECT_TRUE(says(none.err, "is for a picture: add --draw FILE"));
}

TEST_F(Explain, NamesThePeakAndEveryLever) {
  const Outcome result =
      plan(fmt::format("explain {} --seq-len 512 --device-budget 400KiB --json", kTinyQuestion));
  ASSERT_EQ(result.code, 0) << result.err;
  const nlohmann::json object = nlohmann::json::parse(result.out);
  EXPECT_EQ(object.at("host_peak_bytes_per_node"),
            2 * object.at("host_peak_bytes_per_rank").get<std::int64_t>() +
                object.at("host_loading_bytes_per_node").get<std::int64_t>());
  ASSERT_EQ(object.at("peaks").size(), 2U);
  for (const nlohmann::json& peak : object.at("peaks")) {
    std::int64_t sum = 0;
    for (const nlohmann::json& buffer : peak.at("buffers"))
      sum += buffer.at("bytes").get<std::int64_t>();
    EXPECT_EQ(sum, peak.at("bytes")) << peak.at("space");
  }
  std::set<std::string> levers;
  const double base = object.at("sequence_seconds");
  for (const nlohmann::json& lever : object.at("levers")) {
    levers.insert(lever.at("lever"));
    // The search stops at gains below a thousandth, and gives as much for headroom.
    if (!lever.at("fits").get<bool>()) continue;
    EXPECT_GE(lever.at("sequence_seconds"), 0.998 * base) << lever;
  }
  for (const char* name : {"chunk_tokens", "backward_order", "keep states"}) {
    EXPECT_TRUE(levers.contains(name)) << name;
  }
  const Outcome text = plan(
      fmt::format("explain {} --seq-len 512 --device-budget 400KiB --buffers 3", kTinyQuestion));
  EXPECT_TRUE(says(text.out, " host per node  change\n"))
      << "no column that is the same in all rows";
  EXPECT_EQ(text.code, 0);
  for (const char* part :
       {"device at its peak", "host_pinned at its peak", "levers: each at its best other value"}) {
    EXPECT_TRUE(says(text.out, part));
  }
  // It shows the changes of the object, but for those that lead to the same strategy as another.
  std::size_t shown = 0;
  for (const nlohmann::json& lever : object.at("levers")) {
    if (says(text.out, lever.at("change").get<std::string>())) ++shown;
  }
  EXPECT_GE(shown + 2, object.at("levers").size());
  // Rows that fit come first, the fastest of them first, and no row repeats another.
  std::istringstream lines(text.out.substr(text.out.find("\nlevers: ")));
  std::set<std::string> rows;
  double last = -100;
  bool fits = true;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t percent = line.find("% ");
    if (percent == std::string::npos) continue;
    EXPECT_TRUE(rows.insert(line).second) << line;
    EXPECT_TRUE(line.find(" 0             0 ") == std::string::npos ||
                line.find("0.00%") == std::string::npos)
        << line;
    if (line.find("(does not fit)") != std::string::npos) {
      if (fits) last = -100;
      fits = false;
    } else {
      EXPECT_TRUE(fits) << line;
    }
    const double now = std::stod(line.substr(0, percent));
    EXPECT_GE(now, last) << line;
    last = now;
  }
  EXPECT_GT(rows.size(), 5U);
  EXPECT_TRUE(says(text.out, "\nno effect: "));
  const Outcome none =
      plan(fmt::format("explain {} --seq-len 512 --device-budget 1KiB", kTinyQuestion));
  EXPECT_EQ(none.code, 3);
  EXPECT_TRUE(says(none.err, "device memory"));
}

}  // namespace
}  // namespace fpdt::test
