// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions behind scope.hpp.
// Included by block/scope.hpp alone.

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace protrain::inline v0::block {

inline scope::scope(frame const& f) : f_(f) {
  PROTRAIN_EXPECT(f.entry != nullptr, "a scope needs its block's entry");
  PROTRAIN_EXPECT(f.slots != nullptr, "a scope needs a saved_table");
  for (region const& r : {f.saved, f.dropped, f.scratch}) {
    PROTRAIN_EXPECT(reinterpret_cast<std::uintptr_t>(r.data) % address_granule == 0,
                    "a region starts at a multiple of address_granule");
  }
  if (f.pass == pass::recompute) {
    f.slots->begin_again();
  } else if (f.pass == pass::rebuild) {
    f.slots->begin_rebuild();
  } else if (f.pass != pass::backward) {
    f.slots->begin();
  }
}

inline tensor_view scope::save(slot name, dtype type, extents const& shape) {
  tensor_facts const facts{type, shape};
  std::uint64_t const offset = saved_used_;
  saved_used_ = take(f_.saved, saved_used_, facts.bytes(), "saved");
  tensor_view const out = record({.name = name, .type = type, .shape = shape, .offset = offset},
                                 f_.dry ? nullptr : f_.saved.data + offset);
  if (f_.guards != nullptr) {
    f_.guards->hand_out("saved " + detail::in_quotes(name.text()), out);
  }
  return out;
}

inline tensor_view scope::save(slot name, dtype type, extents const& shape, dropped_at level) {
  std::uint32_t const first = level.first().level();
  if (first == 0 || first > f_.entry->levels.size()) {
    fail(name.text(),
         "saves " + detail::in_quotes(name.text()) + " dropped at level " + std::to_string(first) +
             ", but describe declared " + std::to_string(f_.entry->levels.size()) + " levels");
  }
  if (f_.level < first) {
    return save(name, type, shape);
  }
  tensor_facts const facts{type, shape};
  std::uint64_t const offset = dropped_used_;
  dropped_used_ = take(f_.dropped, dropped_used_, facts.bytes(), "dropped");
  tensor_view const out =
      record({.name = name, .type = type, .shape = shape, .offset = offset, .dropped = true},
             f_.dry ? nullptr : f_.dropped.data + offset);
  if (f_.guards != nullptr) {
    f_.guards->hand_out("saved " + detail::in_quotes(name.text()), out);
  }
  return out;
}

inline tensor_view scope::save(slot name, tensor_view const& x) {
  if (!f_.entry->reads_input) {
    fail(name.text(),
         "saves x as " + detail::in_quotes(name.text()) + " but said reads_input(false)");
  }
  PROTRAIN_EXPECT(x == f_.x, "only the block's own x can be saved in place");
  return record({.name = name, .type = x.type, .shape = x.shape, .input = true}, x.data);
}

inline tensor_view scope::record(saved_tensor const& row, void* data) {
  PROTRAIN_EXPECT(forwards(), "scope::save belongs to forward");
  if (f_.slots->find(row.name) != nullptr) {
    fail(row.name.text(), "saves " + detail::in_quotes(row.name.text()) + " twice");
  }
  if (!f_.slots->add(row)) {
    fail(row.name.text(),
         "recompute saves " + detail::in_quotes(row.name.text()) +
             " where forward saved something else; saves depend on shapes only");
  }
  return {data, row.type, row.shape};
}

inline tensor_view scope::saved(slot name) const {
  PROTRAIN_EXPECT(!forwards(), "scope::saved belongs to backward");
  saved_tensor const* const row = f_.slots->find(name);
  if (row == nullptr) {
    fail(name.text(), "backward wants " + detail::in_quotes(name.text()) + ", which was not saved");
  }
  if (row->dropped && !f_.slots->rebuilt(*row)) {
    fail(name.text(),
         "wants " + detail::in_quotes(name.text()) + ", which was dropped and is not rebuilt yet");
  }
  bool const has_x = f_.pass != pass::rebuild || f_.entry->levels.at(f_.level - 1).reads_input;
  if (row->input && !has_x) {
    fail(name.text(), "wants x, which the rebuild of this level said it doesn't read");
  }
  return place(*row);
}

inline tensor_view scope::place(saved_tensor const& row) const {
  if (f_.dry) {
    return {nullptr, row.type, row.shape};
  }
  if (row.input) {
    return {f_.x.data, row.type, row.shape};
  }
  return {(row.dropped ? f_.dropped : f_.saved).data + row.offset, row.type, row.shape};
}

inline saved_tensor const& scope::dropped_row(slot name) const {
  PROTRAIN_EXPECT(f_.pass == pass::rebuild, "what was dropped is a rebuild's affair");
  saved_tensor const* const row = f_.slots->find(name);
  if (row == nullptr) {
    fail(name.text(), "rebuilds " + detail::in_quotes(name.text()) + ", which was not saved");
  }
  return *row;
}

inline tensor_view scope::rebuild(slot name) {
  saved_tensor const& row = dropped_row(name);
  if (!row.dropped) {
    fail(name.text(),
         "rebuilds " + detail::in_quotes(name.text()) +
             ", which this level keeps; ask scope::dropped first");
  }
  f_.slots->rebuild(row);
  tensor_view const out = place(row);
  if (f_.guards != nullptr) {
    f_.guards->hand_out("rebuilt " + detail::in_quotes(name.text()), out);
  }
  return out;
}

inline void scope::require_rebuilt() const {
  if (saved_tensor const* const row = f_.slots->first_missing(); row != nullptr) {
    std::string const& level = f_.entry->levels.at(f_.level - 1).name;
    fail(row->name.text(),
         "the rebuild of level " + detail::in_quotes(level) + " leaves out " +
             detail::in_quotes(row->name.text()) + ", which that level drops");
  }
}

inline tensor_view scope::scratch(dtype type, extents const& shape) {
  tensor_facts const facts{type, shape};
  std::uint64_t const offset = scratch_used_;
  scratch_used_ = take(f_.scratch, scratch_used_, facts.bytes(), "scratch");
  scratch_peak_ = std::max(scratch_peak_, scratch_used_);
  operator_peak_ = std::max(operator_peak_, scratch_used_);
  tensor_view const out = facts.at(f_.dry ? nullptr : f_.scratch.data + offset);
  if (f_.guards != nullptr) {
    f_.guards->hand_out_scratch(out);
  }
  return out;
}

inline tensor_view scope::batch(std::string_view name) const {
  for (std::uint32_t i = 0; i < f_.entry->batch.size(); ++i) {
    if (f_.entry->batch[i].name == name) {
      return batch(batch_ref{i});
    }
  }
  fail(name, "reads batch tensor " + detail::in_quotes(name) + ", which describe did not declare");
}

/// The end of an allocation of `bytes` behind `used`.
inline std::uint64_t scope::take(region const& from,
                                 std::uint64_t used,
                                 std::uint64_t bytes,
                                 char const* what) {
  std::uint64_t const end = checked_add(used, granules(bytes) + (bytes > 0 ? f_.guard : 0));
  if (!f_.dry && end > from.bytes) {
    fail(innermost_ == nullptr ? std::string_view(what) : innermost_->name_,
         "asks for " + std::to_string(bytes) + " bytes of " + what + " memory with " +
             std::to_string(used) + " in use, but " + std::to_string(from.bytes) + " are planned",
         bytes,
         from.bytes);
  }
  return end;
}

inline void scope::fail(std::string_view subject,
                        std::string const& what,
                        std::uint64_t asked,
                        std::uint64_t planned) const {
  std::string const where =
      innermost_ == nullptr ? "" : "operator " + detail::in_quotes(innermost_->name_) + " ";
  throw block_error(f_.entry->name, std::string(subject), where + what, asked, planned);
}

inline operator_scope::operator_scope(scope& owner, std::string_view name)
    : owner_(owner),
      name_(name),
      outer_(owner.innermost_),
      mark_(owner.scratch_used_),
      outer_peak_(owner.operator_peak_),
      guarded_(owner.f_.guards == nullptr ? 0 : owner.f_.guards->mark()) {
  if (observer const* const w = owner.f_.watch; w != nullptr) {
    w->enter(w->context, name, owner.f_.queue);
  }
  owner.innermost_ = this;
  owner.operator_peak_ = mark_;
}

inline operator_scope::~operator_scope() {
  std::uint64_t const peak = owner_.operator_peak_;
  if (guards* const g = owner_.f_.guards; g != nullptr) {
    g->check(name_);
    g->drop(guarded_);
  }
  owner_.innermost_ = outer_;
  owner_.scratch_used_ = mark_;
  owner_.operator_peak_ = std::max(outer_peak_, peak);
  if (observer const* const w = owner_.f_.watch; w != nullptr) {
    w->leave(w->context, name_, owner_.f_.queue, peak - mark_);
  }
}

template <class Kernels>
void operator_scope::run(Kernels&& kernels) const {
  owner_.run(std::forward<Kernels>(kernels));
}

}  // namespace protrain::inline v0::block
