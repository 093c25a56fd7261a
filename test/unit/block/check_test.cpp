// SPDX-License-Identifier: Apache-2.0
// The conformance kit: blocks that keep the law pass, and each way to break it is found out under
// its own name.

#include "protrain/block/check.hpp"

#include "test/law/block.hpp"
#include "test/law/rebuilds.hpp"
#include "test/support/mlp.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace check_test {

namespace {

using namespace protrain;
using block::check_report;

constexpr std::uint64_t rows = 6;
constexpr std::uint64_t n = 5;

enum class fault : std::uint8_t {
  none,
  throws,          // a pass fails
  saves_more,      // than the dry run said
  scratches_more,  // likewise
  overruns_y,      // bounds
  overruns_saved,  // behind a saved tensor, inside the region
  underruns_gradient,
  writes_x,
  writes_parameter,
  counts_calls,
  adds_to_y,  // whatever y held
  reads_scratch,
  reads_address,
  recomputes_less,
  recomputes_other,
  rebuilds_other,
  rebuilds_from_dropped,  // reads what was dropped before it is made
  rebuilds_kept,          // writes other bits to what was kept
  drops_by_data,
  saves_by_data,
  scratches_by_data,
  reads_gradient,
  doubles_gradient,  // in place
  evaluates_other,
  wrong_dx,
  wrong_weight
};

/// y = tanh-like(x w) in T, with a saved tensor and scratch, and at most one fault.
template <class T>
struct faulty {
  fault with = fault::none;
  parameter_ref weight{};
  std::uint64_t* calls = nullptr;

  void describe(block_builder& b) {
    dtype const type = block::dtype_of<T>;
    weight = b.parameter("weight", {n}, {.type = type});
    b.name("faulty");
    b.input({rows, n}, type);
    b.output({rows, n}, type);
    b.level("cheap");
  }

  bool data_says(scope const& s) const {  // a dry run has no data
    return s.dry() || s.value(weight).template as<T const>()[0] > 0;
  }

  void forward(scope& s, tensor_view x, tensor_view y) const {
    bool const again = s.mode() == block::mode::recompute;
    if (with == fault::throws && !s.dry()) {
      throw std::runtime_error("no kernel for this shape");
    }
    std::uint64_t const more = with == fault::saves_more && !s.dry() ? 100 : 0;
    bool const fewer = with == fault::saves_by_data && !data_says(s);
    tensor_view const u = s.save("u", y.type, {rows, n + more});
    if (!fewer && !(with == fault::recomputes_less && again && !s.dry())) {
      tensor_view const extra = s.save("extra", dtype::u8, {1});
      s.run([&] { extra.as<std::uint8_t>()[0] = 1; });
    }
    bool const keeps = with == fault::drops_by_data && !data_says(s);
    tensor_view const copy =
        keeps ? s.save("copy", y.type, {rows, n}) : s.save("copy", y.type, {rows, n}, cheap);
    s.run([&] { fill_copy(copy, x); });
    auto const op = s.op("scale");
    bool const bigger = with == fault::scratches_more && !s.dry();
    bool const smaller = with == fault::scratches_by_data && !data_says(s);
    tensor_view const t = s.scratch(
        y.type, {bigger ? 1000 * rows * n : (smaller ? std::uint64_t{1} : 10 * rows * n)});
    op.run([&] {
      T* const out = y.template as<T>();
      T* const kept = u.template as<T>();
      T const* const w = s.value(weight).template as<T const>();
      for (std::uint64_t i = 0; i < rows * n; ++i) {
        kept[i] = x.template as<T const>()[i] * w[i % n];
        out[i] = kept[i] / (1 + std::abs(kept[i])) + (with == fault::adds_to_y ? out[i] : 0);
      }
      misbehave(s, x, y, u, t, again);
    });
  }

  static constexpr block::dropped_at cheap{level_ref{1}};

  static void fill_copy(tensor_view copy, tensor_view x) {
    for (std::uint64_t i = 0; i < rows * n; ++i) {
      copy.template as<T>()[i] = x.template as<T const>()[i];
    }
  }

  void rebuild(scope& s, tensor_view x) const {
    if (!s.dropped("copy")) {
      return;
    }
    tensor_view const copy = s.rebuild("copy");
    s.run([&] {
      T* const out = copy.template as<T>();
      T const before = out[2];
      fill_copy(copy, x);
      out[5] += with == fault::rebuilds_other ? T{1} : T{0};
      out[2] += with == fault::rebuilds_from_dropped ? before : T{0};
      if (with == fault::rebuilds_kept) {
        s.saved("u").template as<T>()[4] += 1;
      }
    });
  }

  void misbehave(
      scope& s, tensor_view x, tensor_view y, tensor_view u, tensor_view t, bool again) const {
    T* const out = y.template as<T>();
    switch (with) {
      case fault::overruns_y:
        out[rows * n] = 1;
        break;
      case fault::overruns_saved:
        u.template as<T>()[rows * n] = 1;
        break;
      case fault::writes_x:
        x.template as<T>()[3] = 0;
        break;
      case fault::writes_parameter:
        s.value(weight).template as<T>()[1] = 0;
        break;
      case fault::counts_calls:
        out[0] += static_cast<T>(++*calls);
        break;
      case fault::reads_scratch:
        out[2] += t.template as<T>()[1];
        break;
      case fault::reads_address:
        out[4] += static_cast<T>(reinterpret_cast<std::uintptr_t>(out) / 256 % 4096);
        break;
      case fault::recomputes_other:
        u.template as<T>()[7] += again ? T{1} : T{0};
        break;
      case fault::evaluates_other:
        out[6] += s.mode() == block::mode::evaluate ? T{1} : T{0};
        break;
      default:
        break;
    }
  }

  void backward(scope& s, tensor_view x, tensor_view dy, tensor_view dx) const {
    tensor_view const u = s.saved("u");
    s.run([&] {
      T* const dw = s.gradient(weight).template as<T>();
      T const* const w = s.value(weight).template as<T const>();
      T const before = dw[0];
      for (std::uint64_t i = 0; i < rows * n; ++i) {
        T const root = 1 / (1 + std::abs(u.template as<T>()[i]));
        T const du = dy.template as<T const>()[i] * root * root;
        dw[i % n] += du * x.template as<T const>()[i] * (with == fault::wrong_weight ? T{2} : T{1});
        dx.template as<T>()[i] = du * w[i % n] * (with == fault::wrong_dx && i == 7 ? T{-1} : T{1});
      }
      if (with == fault::reads_gradient) {
        dx.template as<T>()[0] += before;
      }
      if (with == fault::doubles_gradient) {
        dw[1] = 2 * dw[1] - dw[1] + dw[1] * 0 + before;  // right where it is zero on entry
      }
      if (with == fault::underruns_gradient) {
        dw[-1] = 0;
      }
    });
  }
};

model::job const job{.micro_batch = 2, .sequence = 3};

/// The least that is a block: it has no parameter and computes nothing.
struct archetype {
  void describe(block_builder& b) const {
    b.input({n});
    b.output({n});
    b.reads_input(false);
  }
  void forward(scope& s, tensor_view x, tensor_view y) const {
    s.run([&] { std::ranges::copy(x.elements_as<float const>(), y.as<float>()); });
  }
  void backward(scope& s, tensor_view, tensor_view dy, tensor_view dx) const {
    s.run([&] { std::ranges::copy(dy.elements_as<float const>(), dx.as<float>()); });
  }
};

/// Blocks with a value and a handle: y = a w x, without a saved tensor.
struct scaled {
  float by = 1;
  parameter_ref weight{};

  void describe(block_builder& b) {
    weight = b.parameter("weight", {n});
    b.input({n});
    b.output({n});
  }
  void forward(scope& s, tensor_view x, tensor_view y) const {
    s.run([&] {
      for (std::uint64_t i = 0; i < n; ++i) {
        y.as<float>()[i] = by * s.value(weight).as<float const>()[i] * x.as<float const>()[i];
      }
    });
  }
  void backward(scope& s, tensor_view x, tensor_view dy, tensor_view dx) const {
    s.run([&] {
      for (std::uint64_t i = 0; i < n; ++i) {
        float const d = by * dy.as<float const>()[i];
        s.gradient(weight).as<float>()[i] += d * x.as<float const>()[i];
        dx.as<float>()[i] = d * s.value(weight).as<float const>()[i];
      }
    });
  }
};

struct makes_archetype {
  static archetype make() { return {}; }
  static model::job job() { return {}; }
};
template <int By>
struct makes_scaled {
  static scaled make() { return {.by = static_cast<float>(By)}; }
  static model::job job() { return {}; }
};
TEST_CASE_TEMPLATE_INVOKE(law::block_laws, makes_archetype, makes_scaled<1>, makes_scaled<-3>);

/// The least that rebuilds: what its only level drops is a copy of x.
struct rebuilds_copy {
  level_ref cheap{};

  void describe(block_builder& b) {
    b.input({n});
    b.output({n});
    cheap = b.level("cheap");
  }
  void forward(scope& s, tensor_view x, tensor_view y) const {
    tensor_view const kept = s.save("kept", dtype::f32, {n}, block::dropped_at{cheap});
    s.run([&] {
      std::ranges::copy(x.elements_as<float const>(), kept.as<float>());
      std::ranges::copy(x.elements_as<float const>(), y.as<float>());
    });
  }
  void backward(scope& s, tensor_view, tensor_view dy, tensor_view dx) const {
    tensor_view const kept = s.saved("kept");
    s.run([&] {
      for (std::uint64_t i = 0; i < n; ++i) {
        dx.as<float>()[i] = dy.as<float const>()[i] + 0 * kept.as<float const>()[i];
      }
    });
  }
  void rebuild(scope& s, tensor_view x) const {
    tensor_view const kept = s.rebuild("kept");
    s.run([&] { std::ranges::copy(x.elements_as<float const>(), kept.as<float>()); });
  }
};
struct makes_rebuilds_copy {
  static rebuilds_copy make() { return {}; }
  static model::job job() { return {}; }
};
/// With a value, parameters and two levels' worth of tensors.
struct makes_leveled {
  static faulty<float> make() { return {}; }
  static model::job job() { return {.micro_batch = 2, .sequence = 3}; }
};
TEST_CASE_TEMPLATE_INVOKE(law::rebuild_laws, makes_rebuilds_copy, makes_leveled);

check_report report_of(fault f) {
  std::uint64_t calls = 0;
  return check_block(faulty<float>{.with = f, .calls = &calls}, job);
}

/// The one law that is broken.
std::string only_law(check_report const& r) {
  std::string out;
  for (block::finding const& f : r.findings) {
    std::string const law(name_of(f.law));
    out += out == law ? "" : law;
  }
  return out;
}

}  // namespace

TEST_CASE("blocks that break a law of rebuilding are found out") {
  CHECK(law::broken_rebuild_law(faulty<float>{.with = fault::rebuilds_other}, job) != "");
  CHECK(law::broken_rebuild_law(faulty<float>{.with = fault::rebuilds_kept}, job) != "");
}

TEST_CASE("a good block has no finding, in fp32 and in fp64") {
  CHECK(report_of(fault::none).text() == "");
  law::keeps_block_law(faulty<double>{}, job);
}

TEST_CASE("the network of the tests keeps the law: first, middle and last block, with dropout") {
  model::job dropping = job;
  dropping.dropout = 0.25F;
  test::mlp_config const config{};
  law::keeps_block_law(test::mlp_input<float>(config), dropping);
  law::keeps_block_law(test::mlp_layer<float>(config), dropping, {.layer = 2});
  law::keeps_block_law(test::mlp_head<float>(config), dropping);
  law::keeps_block_law(test::mlp_head<float>({.tied = true}), dropping);
  dropping.type = dtype::bf16;
  law::keeps_block_law(test::mlp_layer<bfloat16>(config), dropping);
}

TEST_CASE("each fault is found under its own law") {
  struct expectation {
    fault with;
    std::string law;
    std::string tensor;
  };
  expectation const all[] = {{fault::throws, "runs", ""},
                             {fault::saves_more, "promise", ""},
                             {fault::scratches_more, "promise", ""},
                             {fault::overruns_y, "bounds", ""},
                             {fault::overruns_saved, "bounds", ""},
                             {fault::underruns_gradient, "bounds", ""},
                             {fault::writes_x, "read_only", "x"},
                             {fault::writes_parameter, "read_only", "parameter 'weight'"},
                             {fault::counts_calls, "repeats", "y"},
                             {fault::adds_to_y, "contents", "y"},
                             {fault::reads_scratch, "contents", "y"},
                             {fault::reads_address, "addresses", "y"},
                             {fault::recomputes_less, "recompute", ""},
                             {fault::recomputes_other, "recompute", "saved 'u'"},
                             {fault::rebuilds_other, "levels", "saved 'copy'"},
                             {fault::rebuilds_from_dropped, "levels", "saved 'copy'"},
                             {fault::rebuilds_kept, "levels", "saved 'u'"},
                             {fault::drops_by_data, "shapes", ""},
                             {fault::saves_by_data, "shapes", ""},
                             {fault::scratches_by_data, "shapes", ""},
                             {fault::reads_gradient, "contributions", "dx"},
                             {fault::doubles_gradient, "contributions", "gradient 'weight'"},
                             {fault::evaluates_other, "evaluate", "y"},
                             {fault::wrong_dx, "gradients", "dx"},
                             {fault::wrong_weight, "gradients", "gradient 'weight'"}};
  for (expectation const& e : all) {
    check_report const r = report_of(e.with);
    INFO("expected: ", std::string(e.law), "; found: ", r.text());
    REQUIRE_FALSE(r.ok());
    CHECK(only_law(r) == e.law);
    CHECK(r.findings[0].block == "faulty");
    CHECK(r.findings[0].tensor == e.tensor);
  }
}

TEST_CASE("a finding names the element and both values") {
  check_report const r = report_of(fault::evaluates_other);
  REQUIRE(r.findings.size() == 1);
  block::finding const& f = r.findings[0];
  CHECK(f.element == 6);
  CHECK(f.found == doctest::Approx(f.expected + 1));
  CHECK(f.text().starts_with("evaluate: block faulty: y, element 6: "));
  CHECK(f.text().ends_with("; in an evaluation, without dropout"));
  CHECK(r.text() == f.text() + "\n");
  CHECK(r.broken(block::block_law::evaluate));
  CHECK_FALSE(r.broken(block::block_law::bounds));

  check_report const wrong = report_of(fault::wrong_dx);
  REQUIRE(wrong.findings.size() == 1);
  CHECK(wrong.findings[0].element == 7);
  CHECK(wrong.findings[0].found == doctest::Approx(-wrong.findings[0].expected).epsilon(0.05));
}

TEST_CASE("data can be given, and gradients left out") {
  std::vector<std::string> asked;
  block::check_options const options{
      .elements = 100,
      .gradients = false,
      .load = [&](std::string_view name, tensor_view to, std::uint64_t data) {
        asked.emplace_back(name);
        if (name == "weight") {
          std::ranges::fill(to.elements_as<float>(), static_cast<float>(data));
        }
        return name == "weight";
      }};
  CHECK(check_block(faulty<float>{.with = fault::wrong_weight}, job, options).ok());
  CHECK(std::ranges::count(asked, "weight") > 2);
  CHECK(std::ranges::count(asked, "dy") == std::ranges::count(asked, "x"));
}

TEST_CASE("a description that fails is a finding") {
  auto const lone = make_block([](block_builder&) { throw std::runtime_error("no such size"); },
                               [](scope&, tensor_view, tensor_view) {},
                               [](scope&, tensor_view, tensor_view, tensor_view) {});
  check_report const r = check_block(lone, job);
  REQUIRE(r.findings.size() == 1);
  CHECK(r.findings[0].text() == "runs: block ?: no such size");
}

}  // namespace check_test
