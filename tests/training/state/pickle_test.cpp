#include "training/state/pickle.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <map>
#include <string>
#include <vector>

namespace assay::training {
namespace {

using std::string;
using Words = std::vector<string>;

pickle::Scan scanned(const string& text) { return pickle::scan(std::as_bytes(std::span(text))); }
string zeros(size_t n) { return string(n, '\0'); }
string length(size_t n, size_t bytes) {
  string out;
  for (size_t i = 0; i < bytes; ++i) out += static_cast<char>(n >> 8 * i);
  return out;
}

// A scan that takes an argument for shorter or longer than it is ends at a byte that is not an opcode, or
// misses the global behind it.
TEST(PickleScan, EveryOpcodeIsAsLongAsPythonWritesIt) {
  const string global = "cos\nsystem\n.";
  for (const char op : string("(012NQRabdel}st)]uo"))
    EXPECT_EQ(scanned(op + global).globals, (Words{"os system"})) << op;
  for (const int op : {0x81, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8F, 0x90, 0x91, 0x92, 0x94, 0x97, 0x98})
    EXPECT_EQ(scanned(static_cast<char>(op) + global).globals, (Words{"os system"})) << op;
  // By the size of the argument, and by that of the length before it.
  const std::map<size_t, std::vector<int>> fixed = {
      {1, {0x80, 'K', 'h', 'q', 0x82}}, {2, {'M', 0x83}}, {4, {'J', 'j', 'r', 0x84}}, {8, {'G', 0x95}}};
  for (const auto& [bytes, opcodes] : fixed)
    for (const int op : opcodes)
      EXPECT_EQ(scanned(static_cast<char>(op) + zeros(bytes) + global).globals, (Words{"os system"})) << op;
  const std::map<size_t, std::vector<int>> counted = {
      {1, {'U', 0x8C, 'C', 0x8A}}, {4, {'T', 'X', 'B', 0x8B}}, {8, {0x8D, 0x8E, 0x96}}};
  for (const auto& [bytes, opcodes] : counted)
    for (const int op : opcodes)
      EXPECT_EQ(scanned(static_cast<char>(op) + length(3, bytes) + "..." + global).globals,
                (Words{"os system"}))
          << op;
  for (const char op : string("IFLSVgpP"))
    EXPECT_EQ(scanned(op + string("'1'\n") + global).globals, (Words{"os system"})) << op;
  EXPECT_EQ(scanned("ios\nsystem\n" + global).globals, (Words{"os system"}));
}

TEST(PickleScan, AGlobalFromTheStackIsTheLastTwoStrings) {
  const string text = "\x8C\x02os\x8C\x06system\x93.";
  EXPECT_EQ(scanned(text).strings, (Words{"os", "system"}));
  EXPECT_EQ(scanned(text).globals, (Words{"os system"}));
  EXPECT_EQ(scanned("Vos\nS'system'\n\x93.").globals, (Words{"os system"}));
  EXPECT_EQ(scanned("\x8C\x02os\x93.").globals, (Words{""}));
  // Strings of every form count; bytes do not.
  for (const auto& [op, bytes] :
       std::initializer_list<std::pair<int, size_t>>{{'U', 1}, {'T', 4}, {'X', 4}, {0x8C, 1}, {0x8D, 8}})
    EXPECT_EQ(scanned(static_cast<char>(op) + length(2, bytes) + "os.").strings, (Words{"os"})) << op;
  for (const auto& [op, bytes] :
       std::initializer_list<std::pair<int, size_t>>{{'B', 4}, {'C', 1}, {0x8E, 8}, {0x96, 8}})
    EXPECT_TRUE(scanned(static_cast<char>(op) + length(2, bytes) + "os.").strings.empty()) << op;
}

TEST(PickleScan, WhatEndsEarlyOrIsNoOpcodeIsUnreadable) {
  for (const char* text : {"", "(", "K", "cos\n", "X\x01", "\x01."})
    EXPECT_THROW(scanned(text), pickle::Unreadable) << text;
}

}  // namespace
}  // namespace assay::training
