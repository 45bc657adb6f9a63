// The table of forms: every form that it lists can be decoded, and nothing else is.
#include "fast/ptx/forms.h"

#include <gtest/gtest.h>

#include "tests/fast/ptx/harness.h"

namespace assay::ptx {
namespace {

std::string register_of(int bits) {
  return bits == 8 ? "%b" : bits == 16 ? "%h" : bits == 64 ? "%d" : bits == 128 ? "%q" : "%r";
}

// Operands that fit an opcode, by the letters of its row.
std::string operands_of(const Opcode& op, bool with_optional) {
  const int vector = op.has("v2") ? 2 : op.has("v4") ? 4 : op.has("v8") ? 8 : 1;
  const auto list = [](const std::string& r, int count) {
    std::string out;
    for (int n = 0; n < count; ++n) out += (n ? ", " : "") + r;
    return count == 1 ? out : "{" + out + "}";
  };
  std::string out, rest(op.row->operands);
  for (size_t at = 0; at < rest.size();) {
    const size_t end = std::min(rest.find(' ', at), rest.size());
    std::string p = rest.substr(at, end - at);
    at = end + 1;
    if (p[0] == '[') {
      if (!with_optional) continue;
      p = p.substr(1, p.size() - 2);
    }
    const int first = info(op.first()).bits, last = info(op.last()).bits;
    std::string o;
    switch (p[0]) {
      case 'd':
      case 't':
      case 'x': o = register_of(first); break;
      case 'a':
      case 'y': o = register_of(last); break;
      case 'D': o = register_of(2 * first); break;
      case 'A': o = register_of(2 * last); break;
      case 'n':
      case 'u': o = "%r"; break;
      case 'w': o = "%d"; break;
      case 'p':
      case 'q': o = "%p"; break;
      case 'm':
        o = op.row->name == "st" && op.has("param") ? "[given]" : op.has("param") ? "[pointer]" : "[%d+16]";
        break;
      case 'k':
      case 'B': o = "[%r+16]"; break;
      case 'G': o = "[%d+16]"; break;
      case 'z': o = "%r"; break;
      case 'R':
      case 'Z': o = list("%r", op.row->name == "wmma" && op.last() == Type::f32 ? 8 : 4); break;
      case 'X':
        o = list("%r", op.has("m16n8k4") || (op.has("m16n8k8") && op.types[1] != Type::tf32) ? 2 : 4);
        break;
      case 'Y':
        o = list("%r", op.row->name == "wmma"                                                  ? 4
                       : op.has("m16n8k4") || (op.has("m16n8k8") && op.types[1] != Type::tf32) ? 1
                                                                                               : 2);
        break;
      case 'M':
        for (const char* n : {"1", "2", "3", "4", "5"})
          if (op.has(std::string(n) + "d")) {
            o = "%r";
            for (char k = '1'; k < *n; ++k) o += ", %r";
          }
        o = "[%d, {" + o + "}]";
        break;
      case 'W':
        for (const std::string& word : op.modifiers)
          if (word.starts_with("m64n")) o = list("%r", std::stoi(word.substr(4)) / 2);
        break;
      // With the optional number A comes by its descriptor, which may lie transposed.
      case 'P': o = with_optional || last != 16 ? "%d" : list("%r", 4); break;
      case 'I': o = "1"; break;
      case 'v':
      case 's': o = list(register_of(last), vector); break;
      case 'f':
      case 'g': o = list("%r", op.has("x2") ? 2 : op.has("x4") ? 4 : 1); break;
      case 'i': o = op.row->kind == Class::copy ? "16" : "3"; break;
      case '4': o = list(register_of(last), 4); break;
      case 'L': o = op.has("idx") ? "LIST" : "HERE"; break;
      case 'c': o = "work"; break;
      default: ADD_FAILURE() << p;
    }
    if (p.size() == 3) o += "|%p";
    out += (out.empty() ? "" : ", ") + o;
  }
  return out;
}

TEST(PtxForms, EveryFormOfTheTableIsDecoded) {
  size_t rows = 0, texts = 0;
  for (const FormRow& row : kForms) {
    ++rows;
    for (const std::string& text : spellings(row, 600)) {
      ++texts;
      const Opcode op = understand(text);
      const bool wide =
          (op.has("v8") && info(op.last()).bits > 32) || (op.has("v4") && info(op.last()).bits > 64);
      bool joins = false;
      for (const char* join : {"and", "or", "xor"}) joins |= op.has(join);
      const bool optional = op.row->name.starts_with("set") ? joins : true;
      const std::string statement = text + " " + operands_of(op, optional) + ";";
      const std::string body =
          ".reg .pred %p;\n.reg .b8 %b;\n.reg .b16 %h;\n.reg .b32 %r;\n.reg .b64 %d;\n.reg .b128 %q;\n.param "
          ".b8 "
          "given[64];\nHERE:\n" +
          statement + "\nret;\nLIST: .branchtargets HERE;";
      try {
        Module m(replaced(kernel_text(".param .u64 pointer", body), ".visible",
                          ".func work() { ret; }\n.visible"));
        m.kernel("kernel");
        EXPECT_FALSE(wide) << statement;
      } catch (const Fault& e) {
        EXPECT_TRUE(wide) << statement << ": " << e.what();
      }
    }
  }
  EXPECT_GT(rows, 150u);
  EXPECT_GT(texts, 5000u);
  RecordProperty("texts", static_cast<int>(texts));
}

std::string refusal(const std::string& statement) {
  try {
    Module m(
        kernel_text(".param .u64 pointer",
                    ".reg .pred %p;\n.reg .b16 %h;\n.reg .b32 %r;\n.reg .b64 %d;\n" + statement + "\nret;"));
    m.kernel("kernel");
  } catch (const Fault& e) {
    return e.what();
  }
  return "";
}

TEST(PtxForms, OthersRefuseTheKernelWithLineAndText) {
  for (const char* statement :
       {"add.rn.ftz.f64 %d, %d, %d;", "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 %r, %r, %r;",
        "add.s33 %r, %r, %r;", "mul.s32 %r, %r, %r;", "cvt.rn.e4m3x2.f32 %h, %r, %r;",
        "cvt.rz.satfinite.e4m3x2.f32 %h, %r, %r;", "fma.f32 %r, %r, %r, %r;", "shfl.bfly.b32 %r, %r, 1, 31;",
        "ld.global.v3.b32 {%r, %r, %r}, [%d];", "add.rn.rz.f32 %r, %r, %r;",
        "tcgen05.fence::before_thread_sync;", "frobnicate.u32 %r;"}) {
    const std::string why = refusal(statement),
                      opcode = std::string(statement).substr(0, std::string(statement).find_first_of(" ;"));
    EXPECT_TRUE(why.starts_with("PTX line 10: ")) << statement << ": " << why;
    EXPECT_NE(why.find("'" + opcode + "'"), std::string::npos) << statement << ": " << why;
  }
}

// Rows that lack the same share one reason, behind their sections.
TEST(PtxForms, ARefusalTellsEachReasonOnce) {
  const std::string why = refusal("cp.async.mbarrier.arrive.noinc.shared::cluster.b64 [%d];");
  const auto count = [&](const std::string& what) {
    size_t n = 0;
    for (size_t at = 0; (at = why.find(what, at)) != std::string::npos; ++at) ++n;
    return n;
  };
  EXPECT_EQ(count("'.mbarrier' is not among its modifiers"), 1u) << why;
  EXPECT_EQ(count("'.shared::cluster' is not among its modifiers"), 1u) << why;
  EXPECT_EQ(count("9.7.9.25.3.1"), 1u) << why;
  EXPECT_LE(count("; "), 3u) << why;
  EXPECT_LT(why.size(), 500u) << why;
  EXPECT_NE(refusal("cvt.f16.f32 %h, %r;").find("; other rows differ in other ways)"), std::string::npos);
}

TEST(PtxForms, OperandsOfTheWrongKindAreRefused) {
  for (const char* statement : {"add.u32 %r, %r, %d;",
                                "add.u32 %d, %r, %r;",
                                "add.u32 %r, %r;",
                                "add.u32 %r, %r, %r, %r;",
                                "add.u32 %r, %r, %p;",
                                "add.u32 5, %r, %r;",
                                "add.f32 %r, %r, 5;",
                                "add.u32 %r, %r, 0f3F800000;",
                                "add.u32 %r, %r, %nothing;",
                                "selp.b32 %r, %r, %r, %r;",
                                "setp.eq.u32 %r, %r, %r;",
                                "setp.eq.and.u32 %p, %r, %r;",
                                "setp.eq.u32 %p, %r, %r, %p;",
                                "ld.global.u32 %r, %d;",
                                "ld.global.u32 %r, [%h];",
                                "ld.global.v2.u32 %r, [%d];",
                                "ld.global.v2.u32 {%r, %d}, [%d];",
                                "ld.global.u64 %r, [%d];",
                                "ld.global.u32 %r, [pointer];",
                                "@%r ret;",
                                "bra NOWHERE;",
                                "mov.b32 %r, {%h, %h, %h};",
                                "mov.b32 {%h, %h}, %d;",
                                "cvt.s64.s32 %r, %r;",
                                "add.u32 %r|%p, %r, %r;",
                                "lop3.b32 %r, %r, %r, %r, %r;",
                                "neg.s32 %r, !%p;",
                                "mov.b128 %d, %d;",
                                "mov.b128 {%d, %d}, {%d, %r};",
                                "ld.global.b128 %r, [%d];",
                                "cvt.u64.u32 %d, [%d, {%r}];"})
    EXPECT_TRUE(refusal(statement).starts_with("PTX line ")) << statement << ": " << refusal(statement);
}

}  // namespace
}  // namespace assay::ptx
