// fpdt-plan search and max-seq: the fastest strategy within the budgets, and how far it goes.
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

namespace fpdt {

// Adds the verb and returns what runs it.
std::function<int()> add_search(CLI::App& app);
std::function<int()> add_max_seq(CLI::App& app);

}  // namespace fpdt
