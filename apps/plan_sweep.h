// fpdt-plan sweep: the answer along one thing, as a table, an object and curves.
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

namespace fpdt {

// Adds the verb and returns what runs it.
std::function<int()> add_sweep(CLI::App& app);

}  // namespace fpdt
