#include "support/data.hpp"

#include <cmath>
#include <stdexcept>

#include "core/random.hpp"

namespace crimp::test {
namespace {

constexpr const char* kNames[] = {"normal", "laplace",   "sparse", "constant",   "zeros",
                                  "tiny",   "subnormal", "huge",   "alternating"};

class Normal {
 public:
  explicit Normal(std::uint64_t seed) : random_(seed, 1) {}
  float operator()(std::uint64_t i) const {
    std::int64_t sum = -6 * (std::int64_t{1} << 24);
    for (std::uint64_t k = 0; k < 3; ++k)
      for (const std::uint32_t bits : random_.block(3 * i + k)) sum += bits >> 8;
    return static_cast<float>(sum) * 0x1p-24f;
  }

 private:
  Random random_;
};

}  // namespace

std::string name_of(Data d) { return kNames[static_cast<int>(d)]; }

Data data_named(const std::string& name) {
  for (const Data d : kAllData)
    if (name == name_of(d)) return d;
  throw std::invalid_argument("no test data is called '" + name + "'");
}

std::vector<float> make_data(Data kind, std::uint64_t seed, std::size_t count) {
  const Normal normal(seed);
  const Random random(seed, 2);
  std::vector<float> v(count);
  for (std::size_t i = 0; i < count; ++i) switch (kind) {
      case Data::normal: v[i] = normal(i); break;
      case Data::laplace: {
        const double u = (random.bits(i) + 0.5) * 0x1p-32 - 0.5;
        v[i] = static_cast<float>((u < 0 ? 1 : -1) * std::log1p(-2 * std::fabs(u)));
        break;
      }
      case Data::sparse: v[i] = random.bits(i) % 50 == 0 ? normal(i) : 0.0f; break;
      case Data::constant: v[i] = -0.37f; break;
      case Data::zeros: v[i] = 0.0f; break;
      case Data::tiny: v[i] = normal(i) * 0x1p-120f; break;
      case Data::subnormal: v[i] = normal(i) * 0x1p-140f; break;
      case Data::huge: v[i] = std::ldexp(normal(i) / 6, 100 - static_cast<int>(random.bits(i) % 8)); break;
      case Data::alternating: v[i] = i % 7 == 6 ? -0.0f : i % 2 ? -1.0f : 1.0f; break;
    }
  return v;
}

std::vector<float> make_sparse(double density, std::uint64_t seed, std::size_t count) {
  const Normal normal(seed);
  const Random random(seed, 3);
  std::vector<float> v(count);
  for (std::size_t i = 0; i < count; ++i) v[i] = static_cast<double>(random.uniform(i)) < density ? normal(i) : 0.0f;
  return v;
}

std::vector<float> example37() {
  std::vector<float> v(37);
  v[0] = 1.0f;
  v[3] = -0.6f;
  v[6] = 0.49f;
  v[12] = 0.51f;
  v[36] = -1.0f;
  return v;
}

}  // namespace crimp::test
