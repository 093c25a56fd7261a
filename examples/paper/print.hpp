// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tables as text, as Markdown and as JSON.

#include "examples/paper/table.hpp"

#include <string>
#include <vector>

namespace paper {

/// For terminals: columns.
std::string as_text(table const& t);
/// The same as a Markdown table.
std::string as_markdown(table const& t);
/// All of them as one object.
std::string as_json(std::vector<table> const& all);

}  // namespace paper
