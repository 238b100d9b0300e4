// Finds the beginning and end of functions and types from the braces alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fpdt::tidy {

struct Function {
  int first_line = 0;  // of the line with the opening brace, from 1
  int lines = 0;       // up to the closing brace
};

// Bodies of functions at namespace or class level, from the code of a file (see code_only).
std::vector<Function> functions(std::string_view code);

struct Type {
  std::string name;  // with its namespaces: "fpdt::cuda::Tile"
  int line = 0;      // with the opening brace, from 1
};

// Types that other files can see and name. Excludes types nested in a type or in a function, types
// in an anonymous namespace, and specialisations of templates.
std::vector<Type> types(std::string_view code);

}  // namespace fpdt::tidy
