// A hunt in a folder of its own, of a subject that fails where a test says.
#pragma once
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <span>
#include <sstream>
#include <string>
#include <string_view>

#include "compare/commands/hunt.h"
#include "fixtures/files.h"
#include "fixtures/json.h"
#include "tests/compare/fakes.h"

namespace assay::hunts {

class Hunt : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        testing::TempDir() + "assay_hunt_" + testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  HuntOptions options(const std::string& only, int64_t batches) {
    HuntOptions o;
    o.subject = "fake";
    o.folder = folder_;
    o.only = only;
    o.minutes = 60;
    o.batches = batches;
    o.max_elements = 512;
    o.budget = 2;
    o.settings.jobs = 2;
    return o;
  }
  struct Told {
    int status;
    std::string text;
  };
  Told hunt(const HuntOptions& o, const Subjects& subjects) {
    std::FILE *out = std::tmpfile(), *err = std::tmpfile();
    Told told{run_hunt(o, subjects, out, err), {}};
    for (std::FILE* file : {out, err}) {
      std::rewind(file);
      for (int c; (c = std::fgetc(file)) != EOF;) told.text += static_cast<char>(c);
      std::fclose(file);
    }
    return told;
  }
  std::string read(const std::string& name) {
    const auto mapped = MappedFile::open(folder_ + "/" + name);
    if (!mapped) return {};
    return {reinterpret_cast<const char*>(mapped->bytes().data()), mapped->bytes().size()};
  }
  // The sum of what the records of all runs say under that name.
  int64_t sum_of(std::string_view name) {
    std::istringstream records(read("hunt.jsonl"));
    int64_t out = 0;
    for (std::string text; std::getline(records, text);) {
      const auto record = json::parse(text);
      EXPECT_TRUE(record) << text;
      if (const json::Value* n = record ? record->find(name) : nullptr) out += *n->to_int();
    }
    return out;
  }
  static bool read_byte(int from) {
    char byte = 0;
    return ::read(from, &byte, 1) == 1;
  }
  std::string folder_;
};

// Wrong only where the last block of a row is partial and the rows are several: no plain line shows it.
inline void tail_is_wrong(const Problem& p, std::span<const Buffer> out, const Environment&) {
  const Buffer* scales = find<Buffer>(out, "row.scale_inv");
  if (!scales || scales->bytes.empty() || p.x.shape.cols % 32 == 0 || p.x.shape.rows < 2) return;
  scales->bytes[0] ^= std::byte{1};
}

}  // namespace assay::hunts
