// Test inputs, made from counter-based random numbers: the same for a (kind, seed) on every machine.
//
// All but laplace use exact arithmetic only, so golden files may name them.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace crimp::test {

enum class Data { normal, laplace, sparse, constant, zeros, tiny, subnormal, huge, alternating };
inline constexpr Data kAllData[] = {Data::normal, Data::laplace,   Data::sparse, Data::constant,   Data::zeros,
                                    Data::tiny,   Data::subnormal, Data::huge,   Data::alternating};

std::string name_of(Data);
Data data_named(const std::string& name);  // throws std::invalid_argument

// normal: a sum of twelve uniforms. sparse: one of fifty elements of it. tiny, subnormal, huge (up to 2^100): it times
// a power of two. constant: one value. alternating: +1, -1, and -0 at every seventh place.
std::vector<float> make_data(Data, std::uint64_t seed, std::size_t count);
// Elements that are not zero with probability `density`.
std::vector<float> make_sparse(double density, std::uint64_t seed, std::size_t count);
// T0 = 1, T3 = -0.6, T6 = 0.49, T12 = 0.51, T36 = -1, others 0: the example of WIRE_FORMAT.md, 4.4.
std::vector<float> example37();

}  // namespace crimp::test
