#include "reference/philox.h"

#include "reference/parallel.h"

namespace assay::reference {

namespace {

constexpr uint64_t kWord = uint64_t{1} << 32;

}  // namespace

Words philox4x32(Counter counter, uint64_t key, int rounds) {
  uint64_t x = static_cast<uint64_t>(counter % kWord), y = static_cast<uint64_t>(counter / kWord % kWord);
  uint64_t z = static_cast<uint64_t>(counter / kWord / kWord % kWord),
           w = static_cast<uint64_t>(counter / kWord / kWord / kWord);
  uint64_t k0 = key % kWord, k1 = key / kWord;
  for (int round = 0; round < rounds; ++round) {
    const uint64_t p0 = 0xD2511F53 * x, p1 = 0xCD9E8D57 * z;  // N12.1: of 64 bits
    x = p1 / kWord ^ y ^ k0;
    y = p1 % kWord;
    z = p0 / kWord ^ w ^ k1;
    w = p0 % kWord;
    k0 = (k0 + 0x9E3779B9) % kWord;  // N12.1: used from the next round on
    k1 = (k1 + 0xBB67AE85) % kWord;
  }
  return {static_cast<uint32_t>(x), static_cast<uint32_t>(y), static_cast<uint32_t>(z),
          static_cast<uint32_t>(w)};
}

void philox(const Run& run) {
  const ConstBuffer &x = run.input("x"), &key = run.input("key");
  const Buffer& y = run.output("y");
  const int rounds = run.problem.as<Philox>()->rounds;
  parallel_for(run.threads, x.plane->logical.rows, [&](int64_t r) {
    Counter counter = 0;
    for (int64_t word = 3; word >= 0; --word) counter = counter * kWord + load(x, 4 * r + word);
    const Words words = philox4x32(counter, load(key, 2 * r + 1) * kWord + load(key, 2 * r), rounds);
    for (int64_t word = 0; word < 4; ++word) store(y, 4 * r + word, words[static_cast<size_t>(word)]);
  });
}

}  // namespace assay::reference
