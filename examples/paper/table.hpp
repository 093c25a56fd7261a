// SPDX-License-Identifier: Apache-2.0
#pragma once
// One table of the paper beside our predictions, as a value.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace paper {

/// What one way to plan predicts for a row.
struct prediction {
  std::string by;
  std::vector<double> values{};   ///< one for each quantity; none where nothing fits
  std::uint64_t micro_batch = 0;  ///< samples of a rank at a time
  std::string plan{};             ///< the plan string, where there is one plan
};

struct row {
  std::string name;
  std::string machine;
  std::vector<double> paper{};  ///< one for each quantity, or none where the paper prints nothing
  std::vector<prediction> predicted{};
};

struct table {
  std::string id;
  std::string title;
  std::vector<std::string> quantities{};  ///< as JSON names them
  int digits = 0;                         ///< behind the point, for people
  bool micro_batches = false;             ///< whether rows differ in them
  std::vector<std::string> rules{};       ///< by which predictions were made, a sentence each
  std::vector<row> rows{};
};

/// Prediction over paper, where both are there and the paper's isn't 0.
inline std::optional<double> ratio(row const& r, prediction const& p, std::size_t quantity) {
  if (quantity >= p.values.size() || quantity >= r.paper.size() || r.paper[quantity] == 0) {
    return std::nullopt;
  }
  return p.values[quantity] / r.paper[quantity];
}

}  // namespace paper
