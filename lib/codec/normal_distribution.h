// SPDX-License-Identifier: Apache-2.0
//
// N(0, 1) from + - * / alone, which IEEE 754 defines exactly. Unlike libm's, tables made from these
// have the same bits on every machine (docs/adr/0003). Accurate to about 1e-15 for |x| up to 8.
#pragma once

namespace spillway::codec {

constexpr double exponential(double x) {  // x >= 0: all terms positive, no cancellation
  double term = 1.0;
  double sum = 1.0;
  for (int k = 1; k < 120 && sum + term != sum; ++k) {
    term *= x / k;
    sum += term;
  }
  return sum;
}

constexpr double normal_density(double x) {
  constexpr double kInverseSqrtTwoPi = 0.398942280401432677939946;
  return kInverseSqrtTwoPi / exponential(x * x / 2.0);
}

// P(0 < Z < x), negative for negative x, by Marsaglia's series, whose terms all have one sign.
constexpr double normal_mass_from_zero(double x) {
  double term = x;
  double sum = x;
  for (int k = 1; k < 150 && sum + term != sum; ++k) {
    term *= x * x / (2 * k + 1);
    sum += term;
  }
  return sum * normal_density(x);
}

}  // namespace spillway::codec
