#include <cmath>
namespace {
int rank(long x) { return static_cast<int>(x) + 1; }
}  // namespace
int second(long x) { return rank(x); }
