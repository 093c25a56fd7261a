// SPDX-License-Identifier: Apache-2.0
// Products against plain loops, over shapes smaller and larger than a tile; no allocation inside:
// any of Eigen's fails the assertion that EIGEN_NO_MALLOC arms.

#include <stdexcept>

#define EIGEN_NO_MALLOC
#define eigen_assert(condition)           \
  do {                                    \
    if (!(condition)) {                   \
      throw std::logic_error(#condition); \
    }                                     \
  } while (false)

#include "examples/transformer/gemm.hpp"
#include "examples/transformer/gemm_kernel.cpp"  // with the assertions above, in place of the library's
#include "test/unit/transformer/harness.hpp"

using namespace transformer;
using namespace transformer::harness;

namespace {

struct shape {
  length m;
  length n;
  length k;
};

constexpr shape shapes[] = {{1, 1, 1},
                            {2, 3, 5},
                            {1, 7, 300},
                            {129, 1, 3},
                            {7, 193, 13},
                            {130, 197, 19},
                            {13, 21, 515},
                            {128, 192, 256}};

template <operand OpA, operand OpB>
std::vector<double> plain(shape const& s,
                          std::vector<double> const& a,
                          std::vector<double> const& b) {
  std::vector<double> c;
  for (length i = 0; i < s.m; ++i) {
    for (length j = 0; j < s.n; ++j) {
      double sum = 0;
      for (length l = 0; l < s.k; ++l) {
        length const at_a = OpA == operand::as_is ? i * s.k + l : l * s.m + i;
        length const at_b = OpB == operand::as_is ? l * s.n + j : j * s.k + l;
        sum += a[static_cast<std::size_t>(at_a)] * b[static_cast<std::size_t>(at_b)];
      }
      c.push_back(sum);
    }
  }
  return c;
}

template <operand OpA, operand OpB, class TA, class TB, class TC>
std::vector<double> product(memory& m,
                            shape const& s,
                            std::vector<double> const& a,
                            std::vector<double> const& b,
                            std::vector<double> const* bias,
                            std::vector<double> const* before = nullptr) {
  using real = accumulator_t<TC>;
  TA const* const pa = m.put<TA>(a);
  TB const* const pb = m.put<TB>(b);
  TC const* const pbias = bias == nullptr ? nullptr : m.put<TC>(*bias);
  TC* const c = before == nullptr ? m.make<TC>(s.m * s.n) : m.put<TC>(*before);
  real* const workspace = m.make<real>(gemm_workspace<TA, TB, TC>(s.m, s.n, s.k));
  gemm<OpA, OpB>(s.m,
                 s.n,
                 s.k,
                 matrix{pa, OpA == operand::as_is ? s.k : s.m},
                 matrix{pb, OpB == operand::as_is ? s.n : s.k},
                 matrix{c, s.n},
                 pbias,
                 workspace,
                 before == nullptr ? target::overwrite : target::add);
  CHECK(m.guards_intact());
  return values_of(c, s.m * s.n);
}

template <operand OpA, operand OpB>
void check_all_types(shape const& s) {
  auto const a = random_values(s.m * s.k, "a");
  auto const b = random_values(s.k * s.n, "b");
  auto const bias = random_values(s.n, "bias");
  auto const exact = plain<OpA, OpB>(s, a, b);
  auto biased = exact;
  auto doubled = exact;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    biased[i] += bias[i % bias.size()];
    doubled[i] *= 2;
  }
  memory m;
  auto const close = [](std::vector<double> const& x, std::vector<double> const& y, double bound) {
    CHECK(relative_distance({x}, {y}) < bound);
  };
  close(product<OpA, OpB, double, double, double>(m, s, a, b, &bias), biased, 1e-13);
  close(product<OpA, OpB, float, float, float>(m, s, a, b, &bias), biased, 2e-6);
  close(product<OpA, OpB, bfloat16, bfloat16, bfloat16>(m, s, a, b, &bias), biased, 0x1p-8);
  close(product<OpA, OpB, bfloat16, bfloat16, float>(m, s, a, b, nullptr), exact, 2e-6);
  close(product<OpA, OpB, float, bfloat16, bfloat16>(m, s, a, b, nullptr), exact, 0x1p-8);
  close(product<OpA, OpB, float, bfloat16, float>(m, s, a, b, nullptr, &exact), doubled, 2e-6);
}

template <class T>
void check_bits_everywhere(shape const& s) {
  auto const a = random_values(s.m * s.k, "a");
  auto const b = random_values(s.k * s.n, "b");
  auto const at = [&](std::size_t shift) {
    memory m{shift, static_cast<unsigned char>(shift)};
    return arrays{product<operand::as_is, operand::transposed, T, T, T>(m, s, a, b, nullptr),
                  product<operand::transposed, operand::as_is, T, T, T>(m, s, a, b, nullptr),
                  product<operand::as_is, operand::as_is, T, T, T>(m, s, a, b, nullptr)};
  };
  auto const reference = at(0);
  for (std::size_t const shift : {1U, 3U, 6U, 11U}) {
    CHECK(same_bits(at(shift), reference));
  }
}

}  // namespace

TEST_CASE("products are right for every shape, orientation and type") {
  for (shape const& s : shapes) {
    CAPTURE(s.m);
    CAPTURE(s.n);
    CAPTURE(s.k);
    check_all_types<operand::as_is, operand::as_is>(s);
    check_all_types<operand::as_is, operand::transposed>(s);
    check_all_types<operand::transposed, operand::as_is>(s);
    check_all_types<operand::transposed, operand::transposed>(s);
  }
}

TEST_CASE("a product's bits don't depend on addresses or on what memory held") {
  for (shape const& s : shapes) {
    check_bits_everywhere<float>(s);
    check_bits_everywhere<bfloat16>(s);
  }
}

TEST_CASE("strided operands and results touch nothing between their rows") {
  memory m;
  shape const s{5, 3, 7};
  auto const a = random_values(s.m * 20, "a");
  auto const b = random_values(s.n * 20, "b");
  std::vector<double> const before(static_cast<std::size_t>(s.m * 20), 99);
  float const* const pa = m.put<float>(a);
  float const* const pb = m.put<float>(b);
  float* const pc = m.put<float>(before);
  float* const workspace = m.make<float>(gemm_workspace<float, float, float>(s.m, s.n, s.k));
  gemm<operand::as_is, operand::transposed>(s.m,
                                            s.n,
                                            s.k,
                                            matrix{pa + 4, 20},
                                            matrix{pb + 9, 20},
                                            matrix{pc + 6, 20},
                                            static_cast<float const*>(nullptr),
                                            workspace);
  for (length i = 0; i < s.m; ++i) {
    for (length j = 0; j < 20; ++j) {
      double expected = 99;
      if (j >= 6 && j < 6 + s.n) {
        expected = 0;
        for (length l = 0; l < s.k; ++l) {
          expected += a[static_cast<std::size_t>(i * 20 + 4 + l)] *
                      b[static_cast<std::size_t>((j - 6) * 20 + 9 + l)];
        }
      }
      CHECK(static_cast<double>(pc[i * 20 + j]) == doctest::Approx(expected).epsilon(1e-5));
    }
  }
}
