// SPDX-License-Identifier: Apache-2.0
#pragma once
// One block between two ends that do nothing, its data, and what came out of it.
// Included by block/check.hpp alone.

#include "protrain/block/elements.hpp"
#include "protrain/block/stack.hpp"
#include "protrain/block/standalone.hpp"
#include "protrain/core/philox.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace protrain::inline v0::block {

/// How `check_block` looks. All numbers have a default that fits blocks of a few thousand elements.
struct check_options {
  std::uint32_t layer = 0;      ///< the layer that the block is told it is
  std::uint64_t elements = 24;  ///< gradients are checked at so many elements of each tensor
  double step = 0;              ///< of the differences; 0 is 1e-2 in fp32 and 1e-5 in fp64
  double tolerance = 0;  ///< share of a tensor's gradient; 0 is 2e-2 in fp32 and 1e-6 in fp64
  float spread = 0.5F;   ///< x, dy, parameters and batch tensors are uniform in +-spread
  bool gradients = true;
  /// Fills "x", "dy", a parameter or a batch tensor by name, differently for another `data`, or
  /// answers false. What nobody fills is random; integers are then 0 or 1.
  std::function<bool(std::string_view name, tensor_view to, std::uint64_t data)> load{};
};

namespace detail {

/// A table of one block and its ends; the block must outlive it.
struct lone_table {
  table blocks{};
  model::job job{};
  block_id at{};

  block_entry const& entry() const { return blocks.blocks[at.index()]; }
};

inline layered end_of_model() {
  return {.forward = [](void const*, scope&, tensor_view, tensor_view) {},
          .backward = [](void const*, scope&, tensor_view, tensor_view, tensor_view) {}};
}

template <class Block>
lone_table make_lone_table(Block& block, model::job const& job, std::uint32_t layer) {
  description d{};
  block_builder builder(job, layer, d);
  block.describe(builder);
  d.name = d.name.empty() ? "under test" : d.name;
  for (declared_parameter& p : d.parameters) {
    p.tied.clear();  // what it is tied to isn't here
  }
  lone_table out{.job = job, .at = make_id<block_id>(d.input ? 1 : 0)};
  table_builder into{};
  if (d.input) {
    description const before{.name = "before", .output = d.input, .reads_input = false};
    into.add(end_of_model(), 0, before);
  }
  into.add(erase(std::as_const(block), ""), 0, d);
  if (d.output) {
    description const behind{.name = "behind", .input = d.output, .reads_input = false};
    into.add(end_of_model(), 0, behind);
  }
  out.blocks = std::move(into).finish();
  out.blocks.blocks[out.at.index()].layer = layer;
  return out;
}

/// A view of memory that is only read.
inline tensor_view readable(void const* data, tensor_facts const& facts) {
  return facts.at(const_cast<void*>(data));  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

/// A copy of one tensor.
struct kept_tensor {
  std::string name{};
  tensor_facts facts{};
  bool gradient = false;
  std::vector<std::byte> bytes{};

  tensor_view view() { return facts.at(bytes.data()); }
  double at(std::uint64_t i) const { return load_element(readable(bytes.data(), facts), i); }
  void set(std::uint64_t i, double x) { store_element(view(), i, x); }
};
using snapshot = std::vector<kept_tensor>;

inline void keep(snapshot& into, std::string name, tensor_view const& t, bool gradient = false) {
  if (t.data != nullptr) {
    std::span const bytes(t.raw(), static_cast<std::size_t>(t.bytes()));
    into.push_back({std::move(name), {t.type, t.shape}, gradient, {bytes.begin(), bytes.end()}});
  }
}

struct difference {
  std::string tensor{};
  std::uint64_t element = 0;
  double expected = 0;
  double found = 0;
};

/// The first element whose bits differ.
inline std::optional<difference> first_difference(snapshot const& expected, snapshot const& found) {
  for (std::size_t i = 0; i < expected.size() && i < found.size(); ++i) {
    kept_tensor const& a = expected[i];
    kept_tensor const& b = found[i];
    auto const at = std::ranges::mismatch(a.bytes, b.bytes).in1;
    if (at != a.bytes.end()) {
      auto const k = static_cast<std::uint64_t>(at - a.bytes.begin()) / size_of(a.facts.type);
      return difference{a.name, k, a.at(k), b.at(k)};
    }
  }
  return std::nullopt;
}

/// Runs the block of a table; memory is its own.
class lone_block {
 public:
  lone_block(lone_table const& t, check_options const& options, standalone_options const& memory)
      : table_(t), options_(options), owner_(t.blocks, t.job, memory) {}

  standalone const& owner() const noexcept { return owner_; }
  block_id index() const noexcept { return table_.at; }

  /// Everything that the block reads, by the number of a data set; losses start at 0.
  void load(std::uint64_t data) {
    for (std::size_t p = 0; p < table_.blocks.parameters.size(); ++p) {
      fill(table_.blocks.parameters[p].name.view(), owner_.value(make_id<parameter_id>(p)), data);
    }
    for (batch_tensor const& b : table_.blocks.batch) {
      fill(b.name, owner_.batch(b.name), data);
    }
    fill("x", x(), data);
    fill("dy", dy(), data);
    owner_.begin({.step = 1, .first_sample = 8, .loss_scale = scale});
  }

  void set(std::uint8_t fill, float gradient = 0) { owner_.set(fill, gradient); }
  void forward(pass p, std::uint32_t level = 0) { owner_.forward(index(), p, level); }
  void rebuild() { owner_.rebuild(index()); }
  void backward() { owner_.backward(index()); }
  snapshot run() {
    forward(pass::forward);
    snapshot out = saved();
    backward();
    std::ranges::move(results(), std::back_inserter(out));
    return out;
  }

  snapshot inputs() const {
    snapshot out;
    for (std::size_t p = 0; p < table_.blocks.parameters.size(); ++p) {
      std::string const name(table_.blocks.parameters[p].name.view());
      keep(out, "parameter '" + name + "'", owner_.value(make_id<parameter_id>(p)));
    }
    for (batch_tensor const& b : table_.blocks.batch) {
      keep(out, "batch tensor '" + b.name + "'", owner_.batch(b.name));
    }
    keep(out, "x", x());
    keep(out, "dy", dy());
    return out;
  }
  snapshot outputs() const {
    snapshot out;
    keep(out, "y", owner_.output(index()));
    std::span<float const> const losses = owner_.losses();
    keep(out,
         "loss",
         readable(losses.data(), {.type = dtype::f32, .shape = extents(losses.size())}));
    return out;
  }
  /// Outputs, dx and gradients.
  snapshot results() const {
    snapshot out = outputs();
    keep(out, "dx", dx());
    block_entry const& e = table_.entry();
    for (std::uint32_t k = 0; k < e.parameters.size(); ++k) {
      keep(out, "gradient '" + e.parameters[k].name + "'", owner_.contribution(index(), {k}), true);
    }
    return out;
  }
  snapshot saved() const {
    snapshot out;
    for (saved_tensor const& row : owner_.saved_rows(index())) {
      if (!row.input) {
        keep(out, "saved '" + row.name.text() + "'", owner_.saved(index(), row));
      }
    }
    return out;
  }

  /// Whether the bytes between saved tensors are still `fill`.
  bool padding_holds(std::uint8_t fill) const {
    std::span<std::byte const> const all = owner_.saved(index());
    std::vector<bool> theirs(all.size());
    for (saved_tensor const& row : owner_.saved_rows(index())) {
      std::uint64_t const n = row.input ? 0 : tensor_facts{row.type, row.shape}.bytes();
      std::fill_n(theirs.begin() + static_cast<std::ptrdiff_t>(row.offset), n, true);
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!theirs[i] && all[i] != std::byte{fill}) {
        return false;
      }
    }
    return true;
  }

  /// Gradients of `known` that differ from central differences, the first of each tensor.
  std::vector<difference> wrong_gradients(snapshot const& known) {
    std::vector<difference> out;
    for (kept_tensor const& g : known) {
      std::optional<tensor_view> const of = source_of(g);
      if (!of || g.facts.shape.elements() == 0) {
        continue;
      }
      std::uint64_t const n = g.facts.shape.elements();
      std::uint64_t const looks = std::min(options_.elements, n);
      double const size = root_mean_square(g);
      for (std::uint64_t k = 0; k < looks; ++k) {
        std::uint64_t const i = looks == n ? k : (k * (n / looks) + k % (n / looks));
        if (auto const d = compare(*of, i, g.at(i), size)) {
          out.push_back({g.name, i, *d, g.at(i)});
          break;
        }
      }
    }
    return out;
  }

 private:
  static constexpr float scale = 0.5F;  // of the loss

  tensor_view x() const {
    return index().index() == 0 ? tensor_view{}
                                : owner_.output(make_id<block_id>(index().index() - 1));
  }
  tensor_view dx() const {
    return index().index() == 0 ? tensor_view{}
                                : owner_.output_gradient(make_id<block_id>(index().index() - 1));
  }
  tensor_view dy() const { return owner_.output_gradient(index()); }

  void fill(std::string_view name, tensor_view const& to, std::uint64_t data) const {
    if (to.data == nullptr || (options_.load && options_.load(name, to, data))) {
      return;
    }
    random_stream const draws = make_stream({.seed = hash_name(name), .step = data});
    bool const whole = to.type == dtype::i32 || to.type == dtype::u8;
    for (std::uint64_t i = 0; i < to.elements(); ++i) {
      auto const u = static_cast<double>(draws.uniform(i));
      double const even = (2 * u - 1) * static_cast<double>(options_.spread);
      store_element(to, i, whole ? std::floor(2 * u) : even);
    }
  }

  /// What `g` is the gradient by.
  std::optional<tensor_view> source_of(kept_tensor const& g) const {
    if (g.name == "dx") {
      return x();
    }
    block_entry const& e = table_.entry();
    for (entry_parameter const& p : e.parameters) {
      if (g.gradient && g.name == "gradient '" + p.name + "'") {
        return owner_.value(p.id);
      }
    }
    return std::nullopt;
  }

  static double root_mean_square(kept_tensor const& g) {
    double sum = 0;
    for (std::uint64_t i = 0; i < g.facts.shape.elements(); ++i) {
      sum += g.at(i) * g.at(i);
    }
    return std::sqrt(sum / static_cast<double>(g.facts.shape.elements()));
  }

  /// What backward is the gradient of: dy . y, and the losses as they are scaled.
  double objective() {
    owner_.begin({.step = 1, .first_sample = 8, .loss_scale = scale});
    forward(pass::forward);
    double sum = 0;
    tensor_view const y = owner_.output(index());
    for (std::uint64_t i = 0; i < y.elements(); ++i) {
      sum += load_element(y, i) * load_element(dy(), i);
    }
    for (float const loss : owner_.losses()) {
      sum += static_cast<double>(loss) * static_cast<double>(scale);
    }
    return sum;
  }

  double slope(tensor_view const& of, std::uint64_t i, double step) {
    double const old = load_element(of, i);
    store_element(of, i, old + step);
    double const right = load_element(of, i);
    double const above = objective();
    store_element(of, i, old - step);
    double const left = load_element(of, i);
    double const below = objective();
    store_element(of, i, old);
    return (above - below) / (right - left);
  }

  /// The difference's value if no step's agrees with `gradient`. A smaller step helps beside a
  /// kink, a larger one against rounding.
  std::optional<double> compare(tensor_view const& of,
                                std::uint64_t i,
                                double gradient,
                                double size) {
    bool const wide = of.type == dtype::f64;
    double const usual_step = wide ? 1e-5 : 1e-2;
    double const usual_share = wide ? 1e-6 : 2e-2;
    double const step = options_.step > 0 ? options_.step : usual_step;
    double const share = options_.tolerance > 0 ? options_.tolerance : usual_share;
    double last = 0;
    for (double const factor : {1.0, 0.25, 4.0, 0.0625}) {
      last = slope(of, i, step * factor);
      double const error = std::abs(last - gradient);
      if (error <= share * std::max({std::abs(gradient), std::abs(last), size})) {
        return std::nullopt;
      }
    }
    return last;
  }

  lone_table const& table_;
  check_options const& options_;
  standalone owner_;
};

}  // namespace detail
}  // namespace protrain::inline v0::block
