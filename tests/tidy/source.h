// The source tree as text, for the rules of tidiness.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace fpdt::tidy {

// Contents by path relative to the root, such as "lib/fpdt/base/math.h".
using Tree = std::map<std::string, std::string>;

// All text files of the project below `root` to which the rules apply.
Tree read_tree(const std::string& root);

// Lines without their newline.
std::vector<std::string_view> lines(std::string_view text);

// Blanks comments, the contents of literals and preprocessor lines in C++ text, so that only code
// remains, at its place.
std::string code_only(std::string_view text);

// "lib/fpdt/base/math.h" -> "lib/fpdt/base", ".h"; "" where there is none.
std::string_view folder(std::string_view path);
std::string_view extension(std::string_view path);

bool is_cpp(std::string_view path);

}  // namespace fpdt::tidy
