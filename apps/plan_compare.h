// fpdt-plan compare: strategies side by side on one question, and the way from the published policy
// to the answer, lever by lever.
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

namespace fpdt {

// Adds the verb and returns what runs it.
std::function<int()> add_compare(CLI::App& app);

}  // namespace fpdt
