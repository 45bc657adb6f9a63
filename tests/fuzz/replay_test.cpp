// The committed corpora, each input once, in any build: what libFuzzer keeps finding is judged where there is
// no clang.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <string>
#include <vector>

#include "tests/fuzz/readers.h"
#include "tests/source_path.h"

namespace {

namespace fs = std::filesystem;

// The largest request of memory since it was set to 0, from all code of this program.
size_t largest_request = 0;
// The input in progress, for a crash that leaves no report.
char in_progress[4096] = "";

void* requested(size_t size) {
  largest_request = std::max(largest_request, size);
  if (void* memory = std::malloc(size ? size : 1)) return memory;
  throw std::bad_alloc();
}

extern "C" void tell_input(int signal) {
  for (const char* c = in_progress; *c; ++c)
    if (write(STDERR_FILENO, c, 1) < 0) break;
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

struct Reader {
  const char* name;
  void (*read)(std::string_view);
  friend void PrintTo(const Reader& r, std::ostream* out) { *out << r.name; }
};
constexpr Reader kReaders[] = {
#define ASSAY_READER(name) {#name, assay::fuzz::name},
#include "tests/fuzz/readers.def"
#undef ASSAY_READER
};

class Corpus : public testing::TestWithParam<Reader> {};

// As ci/fuzz gives them to libFuzzer: a small file never asks for more than 64 MiB at once, and is read in
// seconds.
constexpr size_t kMostBytes = 4096, kMostRequest = size_t{64} << 20;
constexpr double kMostSeconds = 10;

TEST_P(Corpus, IsReadWithoutHarm) {
  for (const int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGILL}) std::signal(signal, tell_input);
  std::vector<fs::path> inputs;
  for (const auto& entry : fs::directory_iterator(assay::source_path("tests/fuzz/corpus/") + GetParam().name))
    inputs.push_back(entry.path());
  std::sort(inputs.begin(), inputs.end());
  ASSERT_FALSE(inputs.empty());
  for (const fs::path& path : inputs) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    ASSERT_LE(bytes.size(), kMostBytes) << path;
    in_progress[(path.string() + ": this input ends the program\n")
                    .copy(in_progress, sizeof in_progress - 1)] = '\0';
    largest_request = 0;
    const std::clock_t start = std::clock();
    EXPECT_NO_THROW(GetParam().read(bytes)) << path;
    EXPECT_LE(largest_request, kMostRequest) << path << " asks for more memory than any small input may";
    EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, kMostSeconds) << path;
  }
  in_progress[0] = '\0';
}

INSTANTIATE_TEST_SUITE_P(Readers, Corpus, testing::ValuesIn(kReaders),
                         [](const auto& p) { return std::string(p.param.name); });

}  // namespace

void* operator new(size_t size) { return requested(size); }
void* operator new[](size_t size) { return requested(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
