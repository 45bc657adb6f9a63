// The certificate of exp=exact (N20.8): e^x of the reference and of the kernels against MPFR, correctly
// rounded, for every binary32 that is not positive, NaN among them. What is done is kept in a file, so that a
// run that ends early goes on where it stopped.
//
//   exponential_certificate <file> [<threads>]
//
// Exit status: 0 all are equal; 1 some differ; 2 bad usage, or a file that cannot be written or is of another
// run.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <mpfr.h>

#include "fast/lane/exponential.cuh"
#include "reference/exponential.h"

namespace {

constexpr uint32_t kSign = 0x80000000u, kInfinity = 0x7F800000u, kNan = 0x7FFFFFFFu;
constexpr uint32_t kPiece = 1u << 20, kPieces = 1u << 11;  // of the 2^31 patterns with the sign

// e^x rounded once to binary32, subnormals included.
class Witness {
 public:
  Witness() {
    mpfr_set_emin(-148);
    mpfr_set_emax(128);
    mpfr_init2(x_, 24);
  }
  ~Witness() { mpfr_clear(x_); }
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;
  uint32_t operator()(uint32_t bits) {
    if ((bits & ~kSign) > kInfinity) return kNan;
    mpfr_set_flt(x_, std::bit_cast<float>(bits), MPFR_RNDN);
    const int inexact = mpfr_exp(x_, x_, MPFR_RNDN);
    mpfr_subnormalize(x_, mpfr_check_range(x_, inexact, MPFR_RNDN), MPFR_RNDN);
    return std::bit_cast<uint32_t>(mpfr_get_flt(x_, MPFR_RNDN));
  }

 private:
  mpfr_t x_;
};

uint32_t of_reference(uint32_t bits) {
  const double y = assay::reference::exact_exponential(static_cast<double>(std::bit_cast<float>(bits)));
  return std::isnan(y) ? kNan : std::bit_cast<uint32_t>(static_cast<float>(y));
}
uint32_t of_kernel(uint32_t bits) {
  return std::bit_cast<uint32_t>(assay::fast_host::exact_exponential(std::bit_cast<float>(bits)));
}

// How many of a piece's patterns differ; the first one is printed.
uint64_t differ_in(uint32_t piece, Witness& witness) {
  uint64_t wrong = 0;
  for (uint32_t i = 0; i < kPiece; ++i) {
    const uint32_t x = kSign | (piece * kPiece + i), want = witness(x), a = of_reference(x), b = of_kernel(x);
    if (a == want && b == want) continue;
    if (wrong++ == 0) std::printf("x = %08X: MPFR %08X, reference %08X, kernel %08X\n", x, want, a, b);
  }
  return wrong;
}

// The file: one word, the number of pieces done, and the number of patterns that differ in them.
bool read(const char* path, uint32_t& done, uint64_t& wrong) {
  std::FILE* f = std::fopen(path, "r");
  if (!f) return true;
  char word[64];
  unsigned long long w = 0;
  const bool ok = std::fscanf(f, "%63s %u %llu", word, &done, &w) == 3 &&
                  std::string(word) == "exponential-exact" && done <= kPieces;
  wrong = w;
  std::fclose(f);
  return ok;
}
bool write(const char* path, uint32_t done, uint64_t wrong) {
  const std::string next = std::string(path) + ".next";
  std::FILE* f = std::fopen(next.c_str(), "w");
  if (!f) return false;
  const bool ok =
      std::fprintf(f, "exponential-exact %u %llu\n", done, static_cast<unsigned long long>(wrong)) > 0;
  return (std::fclose(f) == 0) && ok && std::rename(next.c_str(), path) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: exponential_certificate <file> [<threads>]\n");
    return 2;
  }
  const auto threads = static_cast<uint32_t>(argc == 3 ? std::max(1, std::atoi(argv[2])) : 1);
  uint32_t done = 0;
  uint64_t wrong = 0;
  if (!read(argv[1], done, wrong)) {
    std::fprintf(stderr, "%s is no certificate of this command; name another file\n", argv[1]);
    return 2;
  }
  if (done == 0)  // +0, the one pattern without a sign
    wrong += of_reference(0) != 0x3F800000u || of_kernel(0) != 0x3F800000u;
  while (done < kPieces) {
    const uint32_t now = std::min(threads, kPieces - done);
    std::vector<uint64_t> found(now);
    std::vector<std::thread> workers;
    for (uint32_t t = 0; t < now; ++t)
      workers.emplace_back([&found, t, piece = done + t] {
        Witness witness;
        found[t] = differ_in(piece, witness);
        mpfr_free_cache();
      });
    for (std::thread& t : workers) t.join();
    for (uint64_t n : found) wrong += n;
    done += now;
    if (!write(argv[1], done, wrong)) {
      std::fprintf(stderr, "cannot write %s\n", argv[1]);
      return 2;
    }
  }
  std::printf("%llu patterns compared, %llu differ\n",
              static_cast<unsigned long long>(uint64_t{kPieces} * kPiece + 1),
              static_cast<unsigned long long>(wrong));
  return wrong == 0 ? 0 : 1;
}
