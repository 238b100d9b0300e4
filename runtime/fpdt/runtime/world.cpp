// The joint operations of processes, in terms of one exchange of small messages.
#include "fpdt/runtime/world.h"

#include <algorithm>
#include <charconv>
#include <exception>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/math.h"

namespace fpdt {
namespace {

std::int64_t number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw PeerError(fmt::format("expected a number from another process, received \"{}\"", text));
  }
  return value;
}

std::vector<std::int64_t> numbers(World& world, std::int64_t mine) {
  std::vector<std::int64_t> all;
  for (const std::string& text : world.gather(std::to_string(mine))) all.push_back(number(text));
  return all;
}

// Takes the text before the next zero byte.
std::string_view take(std::string_view& text) {
  const std::size_t end = std::min(text.find('\0'), text.size());
  const std::string_view first = text.substr(0, end);
  text.remove_prefix(std::min(text.size(), end + 1));
  return first;
}

// Text that `take` takes apart. A fact has no zero byte: it comes from flags and files of text.
std::string print_facts(const Facts& facts) {
  std::string text;
  for (const auto& [name, value] : facts) text += fmt::format("{}{}{}{}", name, '\0', value, '\0');
  return text;
}

std::map<std::string_view, std::string_view> parse_facts(std::string_view text) {
  std::map<std::string_view, std::string_view> facts;
  while (!text.empty()) {
    const std::string_view name = take(text);
    facts[name] = take(text);
  }
  return facts;
}

// "" for success, else "2 what happened", with the exit code first.
std::string print_outcome(const std::optional<Error>& error) {
  return error ? fmt::format("{} {}", static_cast<int>(error->code()), error->what()) : "";
}

}  // namespace

bool World::complete() const {
  return place_.processes > 1 || std::ssize(place_.present) == place_.ranks;
}

void agree(World& world, const std::function<void()>& work) {
  if (world.place().processes == 1) return work();
  std::optional<Error> mine;
  try {
    work();
  } catch (const PeerError&) {
    throw;  // the others have the cause
  } catch (const Error& error) {
    mine = error;
  } catch (const std::bad_alloc&) {
    mine = MemoryError("this machine does not have enough memory");
  }
  const std::vector<std::string> outcomes = world.gather(print_outcome(mine));
  std::optional<Error> worst;
  for (std::size_t process = 0; process < outcomes.size(); ++process) {
    const std::string& outcome = outcomes[process];
    if (outcome.empty()) continue;
    const std::size_t space = outcome.find(' ');
    const auto code = static_cast<ExitCode>(number(outcome.substr(0, space)));
    if (worst && worst->code() >= code) continue;
    worst.emplace(code, fmt::format("rank {}: {}", process, outcome.substr(space + 1)));
  }
  if (!worst) return;
  world.has_agreed_to_fail_ = true;
  throw_error(*worst);
}

std::int64_t sum(World& world, std::int64_t mine) {
  std::int64_t total = 0;
  for (const std::int64_t value : numbers(world, mine)) total = add(total, value);
  return total;
}

std::int64_t largest(World& world, std::int64_t mine) {
  const std::vector<std::int64_t> all = numbers(world, mine);
  return *std::max_element(all.begin(), all.end());
}

void require_same(World& world, const Facts& mine) {
  const std::vector<std::string> all = world.gather(print_facts(mine));
  const auto first = parse_facts(all[0]);
  std::string differences;
  for (std::size_t process = 1; process < all.size(); ++process) {
    const auto other = parse_facts(all[process]);
    auto names = first;
    names.insert(other.begin(), other.end());
    const auto value_in = [](const auto& facts, std::string_view name) {
      const auto found = facts.find(name);
      return found == facts.end() ? std::string_view("not given") : found->second;
    };
    for (const auto& [name, either] : names) {
      const std::string_view a = value_in(first, name), b = value_in(other, name);
      if (a == b) continue;
      differences += fmt::format("\n  {}: {} on rank {}, {} on rank 0", name, b, process, a);
    }
  }
  if (differences.empty()) return;
  world.has_agreed_to_fail_ = true;
  throw InputError(fmt::format("the processes of this job differ:{}", differences));
}

std::string broadcast(World& world, std::string_view text, std::int64_t process) {
  const bool mine = world.place().process == process;
  return world.gather(mine ? text : std::string_view())[static_cast<std::size_t>(process)];
}

}  // namespace fpdt
