// Texts about a program that are made from the same description as its parser: its manual page and
// what bash completes. `cmake --install` installs both.
#pragma once

#include <string>

namespace CLI {
class App;
}  // namespace CLI

namespace fpdt {

// A manual page of section 1, in the language of man(7).
std::string manual_page(const CLI::App& app);

// A script for bash that completes verbs, flags, and names that `fpdt-plan list` shows.
std::string bash_completion(const CLI::App& app);

}  // namespace fpdt
