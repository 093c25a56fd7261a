// SPDX-License-Identifier: Apache-2.0
#pragma once
// What forward leaves for backward: names, shapes and places inside the saved region. Places are
// offsets, so that the region may move in between.

#include "protrain/block/tensor_view.hpp"
#include "protrain/core/philox.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace protrain::inline v0::block {

/// Names a saved tensor: a literal, and a position for those that come in numbers:
/// `save("q", ..)`, `save(slot("expert")[i], ..)`.
class slot {
 public:
  // Implicit on purpose; only a literal will do, so that no name dangles and none is hashed at run
  // time.
  consteval slot(char const* name) : name_(name), hash_(hash_name(name)) {}

  constexpr slot operator[](std::uint32_t index) const noexcept {
    slot numbered = *this;
    numbered.index_ = index;
    return numbered;
  }
  std::string text() const {
    return index_ == none ? std::string(name_)
                          : std::string(name_) + "[" + std::to_string(index_) + "]";
  }
  friend constexpr bool operator==(slot const& a, slot const& b) noexcept {
    return a.hash_ == b.hash_ && a.index_ == b.index_;
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  char const* name_;
  std::uint64_t hash_;
  std::uint32_t index_ = none;
};

struct saved_tensor {
  slot name;
  dtype type = dtype::f32;
  extents shape{0};
  std::uint64_t offset = 0;  ///< from the start of its region
  bool input = false;        ///< x itself; takes no bytes of a region
  bool dropped = false;      ///< at the level of the pass: in the region of what is dropped
  bool operator==(saved_tensor const&) const = default;
};

/// The saves of one block and micro-batch, in order. Its owner keeps it from forward to backward;
/// a recompute must save again what is in it.
class saved_table {
 public:
  /// Forward of a new micro-batch: forgets everything, keeps the memory.
  void begin() noexcept {
    rows_.clear();
    filled_ = 0;
    repeated_ = false;
    begin_rebuild();
  }
  /// Recompute: the rows, if forward left any, are what it must do again.
  void begin_again() noexcept {
    repeated_ = repeated_ || filled_ > 0;
    filled_ = 0;
  }
  /// Before a rebuild: none of what was dropped is there.
  void begin_rebuild() noexcept { std::ranges::fill(rebuilt_, std::uint8_t{0}); }
  void reserve(std::size_t rows) {
    rows_.reserve(rows);
    rebuilt_.reserve(rows);
  }

  /// False if a recompute strays from what forward did.
  bool add(saved_tensor const& row) {
    if (!repeated_) {
      rows_.push_back(row);
      rebuilt_.resize(std::max(rebuilt_.size(), rows_.size()));
    } else if (filled_ == rows_.size() || rows_[filled_] != row) {
      return false;
    }
    ++filled_;
    return true;
  }
  /// Null if the last pass did not save it.
  saved_tensor const* find(slot name) const noexcept {
    for (saved_tensor const& row : rows()) {
      if (row.name == name) {
        return &row;
      }
    }
    return nullptr;
  }
  /// Notes that the row, one of `rows()`, is being rebuilt.
  void rebuild(saved_tensor const& row) noexcept {
    rebuilt_[static_cast<std::size_t>(&row - rows_.data())] = 1;
  }
  bool rebuilt(saved_tensor const& row) const noexcept {
    return rebuilt_[static_cast<std::size_t>(&row - rows_.data())] != 0;
  }
  /// Null if there is none.
  saved_tensor const* first_missing() const noexcept {
    for (saved_tensor const& row : rows()) {
      if (row.dropped && !rebuilt(row)) {
        return &row;
      }
    }
    return nullptr;
  }
  /// What the last pass saved.
  std::span<saved_tensor const> rows() const noexcept { return std::span(rows_).first(filled_); }

 private:
  std::vector<saved_tensor> rows_{};
  std::vector<std::uint8_t> rebuilt_{};  ///< by row, as far as there have ever been any
  std::size_t filled_ = 0;
  bool repeated_ = false;
};

}  // namespace protrain::inline v0::block
