// fpdt-plan: from a question to a schedule. Needs no GPU.
#include <algorithm>
#include <functional>
#include <vector>

#include <CLI/CLI.hpp>

#include "command.h"
#include "flags.h"
#include "plan_compare.h"
#include "plan_draw.h"
#include "plan_explain.h"
#include "plan_lower.h"
#include "plan_search.h"
#include "plan_sweep.h"

namespace fpdt {
namespace {

// A verb and what runs it.
using Add = std::function<int()> (*)(CLI::App&);
constexpr Add kVerbs[] = {add_search,   add_max_seq, add_sweep,  add_compare, add_explain,
                          add_simulate, add_draw,    add_export, add_lower,   add_verify};

int run(int count, const char* const* words) {
  CLI::App app{"Plans the training of transformers on very long sequences."};
  app.set_version_flag("--version", FPDT_VERSION);
  app.require_subcommand(1);
  std::vector<std::function<int()>> verbs;
  for (const Add add : kVerbs) verbs.push_back(add(app));
  if (const std::optional<int> code = parse(app, count, words)) return *code;
  const std::vector<CLI::App*> known = app.get_subcommands([](CLI::App*) { return true; });
  const auto parsed = std::find(known.begin(), known.end(), app.get_subcommands().front());
  return verbs[static_cast<std::size_t>(parsed - known.begin())]();
}

}  // namespace
}  // namespace fpdt

int main(int count, char** words) {
  fpdt::prepare_process();
  return fpdt::guarded("fpdt-plan", [&] { return fpdt::run(count, words); });
}
