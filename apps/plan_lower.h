// fpdt-plan lower: a model, a cluster and a length, with a strategy or defaults, as a schedule that
// is proven.
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

namespace fpdt {

// Each adds its verb and returns what runs it. Nothing is written unless everything fits.
std::function<int()> add_lower(CLI::App& app);
// fpdt-plan verify FILE: loads and proves a schedule file, prints what it is.
std::function<int()> add_verify(CLI::App& app);

}  // namespace fpdt
