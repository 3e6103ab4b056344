// SPDX-License-Identifier: Apache-2.0
#include "codec/plane_code.h"

#include <algorithm>

#include "base/check.h"
#include "codec/normal_distribution.h"

namespace spillway::codec {
namespace {

// Decoders agree bit for bit only if these tables do, so no libm is used.

constexpr double cell_bound(double code) {
  double unit = 0.0;
  for (unsigned i = 0; i < kCompanderLines; ++i) {
    const double slope = (internal::kBreakUnits[i + 1] - internal::kBreakUnits[i]) /
                         (internal::kBreakCodes[i + 1] - internal::kBreakCodes[i]);
    const double line = internal::kBreakUnits[i] + slope * (code - internal::kBreakCodes[i]);
    unit = line > unit ? line : unit;
  }
  return unit;
}

struct PrefixCode {
  std::array<double, 1U << (kTablePlanes - 1)> mean{};  // of each magnitude cell
  std::array<double, 1U << (kTablePlanes - 1)> mass{};  // of each cell, counting both signs
  double explained = 0.0;                               // E[z * mean], which is 1 - D
};

constexpr PrefixCode make_prefix_code(unsigned planes) {
  PrefixCode code;
  const unsigned cells = 1U << (planes - 1);
  double lower_density = normal_density(0.0);
  double lower_mass = 0.0;
  for (unsigned cell = 0; cell < cells; ++cell) {
    const bool last = cell + 1 == cells;  // the outermost cell reaches to infinity
    const double upper = last ? 0.0 : cell_bound(32768.0 * (cell + 1) / cells);
    const double upper_density = last ? 0.0 : normal_density(upper);
    const double upper_mass = last ? 0.5 : normal_mass_from_zero(upper);
    const double moment = lower_density - upper_density;
    const double mass = upper_mass - lower_mass;
    code.mean[cell] = moment / mass;
    code.mass[cell] = 2.0 * mass;
    code.explained += 2.0 * moment * moment / mass;
    lower_density = upper_density;
    lower_mass = upper_mass;
  }
  return code;
}

struct Tables {
  std::array<std::array<LevelTable, 2>, kTablePlanes + 1> levels{};
  std::array<double, kTablePlanes + 1> explained{};
  std::array<double, 1U << (kTablePlanes - 1)> cell_mass{};
};

Tables make_tables() {
  Tables tables;
  tables.explained[0] = 0.0;
  for (unsigned planes = 1; planes <= kTablePlanes; ++planes) {
    const PrefixCode code = make_prefix_code(planes);
    tables.explained[planes] = code.explained;
    tables.cell_mass = code.mass;  // keeps the last code's masses
    for (unsigned byte = 0; byte < 256; ++byte) {
      const double mean = code.mean[(byte & 0x7F) >> (kTablePlanes - planes)];
      const double sign = (byte & 0x80) != 0 ? -1.0 : 1.0;
      tables.levels[planes][static_cast<unsigned>(Estimate::kUnbiased)][byte] =
          static_cast<float>(sign * mean / code.explained);
      tables.levels[planes][static_cast<unsigned>(Estimate::kMinimumError)][byte] =
          static_cast<float>(sign * mean);
    }
  }
  return tables;
}

const Tables& tables() {
  static const Tables made = make_tables();
  return made;
}

// 1 - E[z * mean]. Beyond the tables every further plane divides the squared error by four.
double unexplained_by(unsigned planes) {
  double unexplained = 1.0 - tables().explained[std::min(planes, kTablePlanes)];
  for (unsigned plane = kTablePlanes; plane < planes; ++plane) {
    unexplained *= 0.25;
  }
  return unexplained;
}

}  // namespace

const LevelTable& level_table(unsigned planes, Estimate estimate) {
  SPILLWAY_CHECK(planes <= kTablePlanes);
  return tables().levels[planes][static_cast<unsigned>(estimate)];
}

double magnitude_cell_mass(unsigned cell) {
  SPILLWAY_CHECK(cell < tables().cell_mass.size());
  return tables().cell_mass[cell];
}

double expected_nmse(unsigned planes, Estimate estimate) {
  SPILLWAY_CHECK(planes <= kMaxPlanes);
  const double unexplained = unexplained_by(planes);
  if (estimate == Estimate::kMinimumError || planes == 0) {
    return unexplained;
  }
  return unexplained / (1.0 - unexplained);
}

}  // namespace spillway::codec
