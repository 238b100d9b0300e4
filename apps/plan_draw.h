// fpdt-plan simulate, draw and export: a schedule file on the clock of its machine, as numbers,
// pictures, and the files of other programs.
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

namespace fpdt {

// Each adds its verb and returns what runs it.
std::function<int()> add_simulate(CLI::App& app);
std::function<int()> add_draw(CLI::App& app);
std::function<int()> add_export(CLI::App& app);

}  // namespace fpdt
