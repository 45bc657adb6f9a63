#include "ci/samples/batches/apart/overloads_its_header/rank.h"
namespace {
int rank(int x) { return x; }
}  // namespace
int first(int x) { return rank(x) + rank(0.5); }
