// fpdt-plan explain: what stands at the peak of memory, and what each lever would change.
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

namespace fpdt {

// Adds the verb and returns what runs it.
std::function<int()> add_explain(CLI::App& app);

}  // namespace fpdt
