#include "compare/debug/reproducer.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/judge/claims.h"
#include "compare/judge/judge.h"
#include "compare/packs/pack.h"
#include "compare/report/screen.h"
#include "compare/text/shell.h"
#include "contract/assay_plugin.h"
#include "contract/line.h"
#include "fixtures/files.h"
#include "fixtures/safetensors.h"

namespace assay {

namespace {

using std::string;

constexpr std::string_view kPluginFlag = "--plugin ";

// ---- the pack -----------------------------------------------------------------------------------

void add_planes(const string& id, const std::vector<PlaneData>& planes,
                std::vector<safetensors::Tensor>& out) {
  for (const PlaneData& p : planes)
    out.push_back({id + "/" + p.plane.name,
                   safetensors::dtype_of(p.plane.encoding),
                   {p.plane.stored().rows, p.plane.stored().cols},
                   p.bytes});
}

std::optional<Error> write_pack(const string& path, const string& line, const string& subject,
                                const std::vector<PlaneData>& inputs, const std::vector<PlaneData>& got,
                                const std::vector<PlaneData>& want) {
  std::vector<safetensors::Tensor> tensors;
  safetensors::Metadata notes;
  if (!subject.empty()) notes.emplace_back("assay.subject", subject);
  auto add = [&](const string& id, const std::vector<PlaneData>& outputs) {
    if (outputs.empty()) return;
    add_planes(id, inputs, tensors);
    add_planes(id, outputs, tensors);
    notes.emplace_back("assay.line." + id, line);
  };
  notes.emplace_back("assay.line_version", std::to_string(kLineVersion));
  notes.emplace_back("assay.pack", std::to_string(kPackVersion));
  add("got", got);
  add("want", want);
  std::sort(notes.begin(), notes.end());
  return safetensors::write(path, tensors, notes);
}

// ---- the program --------------------------------------------------------------------------------

// Zeros at the end are left to the language.
string array_text(const string& name, const std::vector<std::byte>& bytes) {
  size_t used = bytes.size();
  while (used > 0 && bytes[used - 1] == std::byte{0}) --used;
  string out = fmt::format("static const unsigned char {}[{}] = {{", name, std::max<size_t>(bytes.size(), 1));
  for (size_t i = 0; i < used; ++i)
    out += fmt::format("{}{:#04x},",
                       used <= 24    ? i ? " " : ""
                       : i % 24 == 0 ? "\n    "
                                     : " ",
                       static_cast<unsigned>(bytes[i]));
  return out + "};\n";
}

// Elements that are compared: all, or those before the part that is never written (N14.6).
int64_t compared(const Plane& p) {
  return p.padding == Padding::untouched ? p.logical.cols : p.padded.count();
}

// A row of the program's table.
string row_text(const PlaneData& data, const string& bytes, const string& want, const string& members) {
  const Plane& p = data.plane;
  const EncodingInfo& e = info(p.encoding);
  return fmt::format(
      "    {{{{\"{}\", \"{}\", {}, {}, {}, {}, nullptr, {}, {}, {}, {}}}, {}, {}, {{{}, {}, {}, {}, {:#x}u, "
      "{:#x}u}}, {}, {}}},\n",
      p.name, e.name, p.logical.rows, p.logical.cols, p.padded.rows, p.padded.cols, data.bytes.size(),
      p.packed ? 1 : 0, members.empty() ? "nullptr" : members, p.members.size(), bytes, want, p.bits(),
      e.exponent_bits, e.mantissa_bits, e.bias, e.max_finite, e.infinity, compared(p),
      p.layout == ScaleLayout::gemm ? "true" : "false");
}

string comment(const string& text) {
  string out = "// ";
  for (const char c : text.substr(0, text.find_last_not_of('\n') + 1))
    out += c == '\n' ? string("\n// ") : string(1, c);
  return out + "\n";
}

string c_string(const string& text) {
  string out = "\"";
  for (const char c : text) out += c == '"' || c == '\\' ? string("\\") + c : string(1, c);
  return out + "\"";
}

constexpr std::string_view kPlanes = R"program(#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>
@include
// As contract/assay_plugin.h has them.
struct Member { int64_t offset, rows, cols, padded_rows, padded_cols; };
struct Plane {
  const char* name;
  const char* encoding;
  int64_t rows, cols, padded_rows, padded_cols;   // row-major, of which rows x cols mean something
  void* data;
  uint64_t bytes;
  int packed;                                     // codes of 4 or 6 bits without a gap, the first in the lowest bits
  const Member* members;
  size_t member_count;
};

struct Encoding { int bits, exponent, mantissa, bias; uint32_t max, infinity; };
struct Row {
  Plane plane;
  const unsigned char* bytes;   // of an input; of an output what the subject wrote, where that is known
  const unsigned char* want;    // of an output: what the reference wrote
  Encoding encoding;
  int64_t compared;             // elements
  bool tiled;                   // scales in the tile order of tensor cores: an element's index is no row and column
};

)program";

constexpr std::string_view kProgram = R"program(
// ---- your kernel here ------------------------------------------------------------------------------------------------
// Write every byte of every output, padding with zeros, and return true. The planes stand in the order of the tables above, in host memory; for a kernel of a GPU
// copy them here, and compile with nvcc -x cu -std=c++17.
static bool my_kernel(const char* line, const Plane* inputs, size_t input_count, const Plane* outputs, size_t output_count) {
  (void)line, (void)inputs, (void)input_count, (void)outputs, (void)output_count;
  return false;
}
// ----------------------------------------------------------------------------------------------------------------------

static uint32_t code_at(const Row& r, const unsigned char* bytes, int64_t i) {
  uint32_t code = 0;
  if (r.encoding.bits < 8) {   // packed
    const int64_t bit = i * r.encoding.bits;
    code = bytes[bit / 8];
    if (bit % 8 + r.encoding.bits > 8) code |= (uint32_t)bytes[bit / 8 + 1] << 8;
    return code >> (bit % 8) & ((1u << r.encoding.bits) - 1);
  }
  std::memcpy(&code, bytes + i * (r.encoding.bits / 8), r.encoding.bits / 8);   // little-endian
  return code;
}

static double value_of(const Encoding& e, const char* name, uint32_t code) {
  if (e.exponent == 0) return code;
  const uint32_t sign = std::strcmp(name, "e8m0") == 0 ? 0 : code >> (e.exponent + e.mantissa) & 1, rest = code & ((1ull << (e.exponent + e.mantissa)) - 1);
  if (rest > e.max) return rest == e.infinity ? (sign ? -INFINITY : INFINITY) : NAN;
  if (e.mantissa == 0) return std::ldexp(1.0, int(rest) - e.bias);
  const int exponent = int(rest >> e.mantissa);
  const double fraction = rest & ((1u << e.mantissa) - 1), one = 1u << e.mantissa;
  const double value = exponent ? std::ldexp(one + fraction, exponent - e.bias - e.mantissa) : std::ldexp(fraction, 1 - e.bias - e.mantissa);
  return sign ? -value : value;
}

// Prints how a plane differs; true where it does.
static bool differs(const Row& r, const unsigned char* got) {
  int64_t differ = 0, shown = 0;
  for (int64_t i = 0; i < r.compared; ++i) differ += code_at(r, got, i) != code_at(r, r.want, i);
  std::printf("%s (%s)   %lld of %lld differ\n", r.plane.name, r.plane.encoding, (long long)differ, (long long)r.compared);
  for (int64_t i = 0; i < r.compared && shown < 4; ++i) {
    const uint32_t g = code_at(r, got, i), w = code_at(r, r.want, i);
    if (g == w) continue;
    ++shown;
    const int digits = (r.encoding.bits + 3) / 4;
    if (r.tiled) std::printf("  element %lld", (long long)i);
    else std::printf("  (%lld, %lld)", (long long)(i / r.plane.padded_cols), (long long)(i % r.plane.padded_cols));
    std::printf("   got %0*X %.9g   want %0*X %.9g\n", digits, g, value_of(r.encoding, r.plane.encoding, g), digits, w, value_of(r.encoding, r.plane.encoding, w));
  }
  return differ != 0;
}

int main(int argc, char** argv) {
  const size_t kGuard = 4096;
  const size_t in_count = sizeof inputs / sizeof *inputs - 1, out_count = sizeof outputs / sizeof *outputs - 1;   // a row of zeros ends each
  std::vector<std::vector<unsigned char>> memory;
  std::vector<Plane> in, out;
  for (size_t i = 0; i < in_count + out_count; ++i) {
    const bool input = i < in_count;
    const Row& row = input ? inputs[i] : outputs[i - in_count];
    auto& block = memory.emplace_back(row.plane.bytes + 2 * kGuard, (unsigned char)0xC3);
    if (input) std::memcpy(block.data() + kGuard, row.bytes, row.plane.bytes);
    else std::memset(block.data() + kGuard, 0x7F, row.plane.bytes);
    Plane plane = row.plane;
    plane.data = block.data() + kGuard;
    (input ? in : out).push_back(plane);
  }

  const char* who = "your kernel";
  bool ran = my_kernel(kLine, in.data(), in_count, out.data(), out_count);
@plugin  bool wrong = false;
  for (size_t i = 0; ran && i < memory.size(); ++i) {
    const Row& row = i < in_count ? inputs[i] : outputs[i - in_count];
    for (size_t k = 0; k < memory[i].size(); ++k) {
      const bool inside = k >= kGuard && k < kGuard + row.plane.bytes;
      const bool changed = inside ? i < in_count && memory[i][k] != row.bytes[k - kGuard] : memory[i][k] != 0xC3;
      if (!changed) continue;
      std::printf("%s: byte %lld of it was written%s\n", row.plane.name, (long long)k - (long long)kGuard, inside ? ", an input" : ", which is outside");
      wrong = true;
      break;
    }
  }
  if (!ran) {
    who = "what was recorded";
    for (size_t i = 0; i < out_count; ++i)
      if (!outputs[i].bytes) return std::printf("nothing was recorded: write my_kernel, or name a library\n"), 2;
  }
  std::printf("%s\n%s against the reference\n", kLine, who);
  for (size_t i = 0; i < out_count; ++i) wrong |= differs(outputs[i], ran ? static_cast<const unsigned char*>(out[i].data) : outputs[i].bytes);
  return wrong;
}
)program";

constexpr std::string_view kLoad = R"program(  const char* path = argc > 1 ? argv[1] : kLibrary;
  if (!ran && std::strcmp(path, "recorded") != 0) {
    void* library = dlopen(path, RTLD_NOW);
    if (!library) return std::printf("cannot load %s: %s\n", path, dlerror()), 2;
    const auto abi = reinterpret_cast<uint32_t (*)()>(dlsym(library, "assay_plugin_abi"));
    const auto on_device = reinterpret_cast<int (*)()>(dlsym(library, "assay_plugin_memory"));
    const auto run = reinterpret_cast<int (*)(const char*, const Plane*, size_t, const Plane*, size_t, char*, size_t)>(dlsym(library, "assay_plugin_run"));
    if (!abi || !run || abi() < @oldest || abi() > @newest) return std::printf("%s is not a plugin of interface @oldest to @newest\n", path), 2;
    if (on_device && on_device()) return std::printf("%s takes device pointers, which this program does not have: ./reproduce recorded\n", path), 2;
    char message[4096] = "";
    if (const int status = run(kLine, in.data(), in_count, out.data(), out_count, message, sizeof message)) return std::printf("the plugin returned %d: %s\n", status, message), 1;
    ran = true;
    who = path;
  }
)program";

string replaced(std::string_view text,
                std::initializer_list<std::pair<std::string_view, std::string_view>> words) {
  string out(text);
  for (const auto& [word, by] : words)
    for (size_t at = out.find(word); at != string::npos; at = out.find(word, at + by.size()))
      out.replace(at, word.size(), by);
  return out;
}

string program_text(const Problem& bad, const string& cause, const string& library,
                    const std::vector<PlaneData>& inputs, const std::vector<PlaneData>& got,
                    const std::vector<PlaneData>& want) {
  const bool plugin = !library.empty();
  string out = comment("Assay: " + to_line(bad)) + comment(cause) +
               "//\n//   c++ -std=c++17 -O1 reproduce.cpp -o reproduce" + (plugin ? " -ldl" : "") + "\n";
  out += plugin ? "//   ./reproduce [<plugin>.so | recorded]     default: the plugin of kLibrary\n"
                : "//   ./reproduce                              my_kernel below; unchanged, it returns the "
                  "recording "
                  "recorded\n";
  out += "// Exit status: 0 equal, 1 different, 2 nothing could be run.\n" +
         replaced(kPlanes, {{"@include", plugin ? "#include <dlfcn.h>\n" : ""}});
  string arrays, in_rows, out_rows;
  int serial = 0;
  auto array = [&](const std::vector<std::byte>& bytes) {
    const string name = "bytes_" + std::to_string(serial++);
    arrays += array_text(name, bytes);
    return name;
  };
  auto members = [&](const Plane& p) -> string {
    if (p.members.empty()) return {};
    const string name = "members_" + std::to_string(serial++);
    arrays += "static const Member " + name + "[] = {";
    for (const Member& m : p.members)
      arrays += fmt::format("{{{}, {}, {}, {}, {}}}, ", m.offset, m.logical.rows, m.logical.cols,
                            m.padded.rows, m.padded.cols);
    arrays += "};\n";
    return name;
  };
  for (const PlaneData& p : inputs) {
    arrays += "// " + p.plane.name + "\n";
    in_rows += row_text(p, array(p.bytes), "nullptr", members(p.plane));
  }
  for (const PlaneData& p : want) {
    const PlaneData* other = find_plane(got, p.plane.name);
    arrays += "// " + p.plane.name + (other ? ": got, want\n" : ": want\n");
    const string mine = other ? array(other->bytes) : "nullptr", theirs = array(p.bytes);
    out_rows += row_text(p, mine, theirs, members(p.plane));
  }
  out += "static const char* const kLine = " + c_string(to_canonical_line(bad)) + ";\n";
  if (plugin) out += "static const char* const kLibrary = " + c_string(library) + ";\n";
  out += arrays + "static const Row inputs[] = {\n" + in_rows + "    {}};\nstatic const Row outputs[] = {\n" +
         out_rows + "    {}};\n";
  const string load = replaced(kLoad, {{"@oldest", std::to_string(ASSAY_PLUGIN_OLDEST_ABI)},
                                       {"@newest", std::to_string(ASSAY_PLUGIN_ABI)}});
  return out + replaced(kProgram, {{"@plugin", plugin ? load : "  (void)argc, (void)argv;\n"}});
}

}  // namespace

std::optional<Error> write_reproducer(const string& folder, const Problem& bad,
                                      const string& subject_argument, const std::vector<PlaneData>& inputs,
                                      const std::vector<PlaneData>& got, const std::vector<PlaneData>& want) {
  size_t bytes = 0;
  for (const auto* planes : {&inputs, &got, &want})
    for (const PlaneData& p : *planes) bytes += p.bytes.size();
  if (bytes > kMaxReproducerBytes)
    return Error{fmt::format("a reproducer holds at most {} bytes of planes, this case has {}",
                             kMaxReproducerBytes, bytes),
                 0, "make it smaller: assay shrink"};
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) return Error{folder + ": " + failed.message(), 0, "name a folder that can be written"};

  const string line = to_line(bad),
               library = subject_argument.starts_with(kPluginFlag)
                             ? shell_unquoted(subject_argument.substr(kPluginFlag.size()))
                             : "";
  string cause = got.empty() ? "the subject wrote nothing that could be recorded"
                             : "the recordings of both sides are equal: the failure shows only in a run";
  if (!got.empty())
    if (const auto breach = parity_breach(bad, judge(&bad, got, want), "got", "want"))
      cause = cause_text(*breach);
  const string at = folder + "/";
  if (auto error = write_pack(at + "case.safetensors", line, subject_argument, inputs, got, want))
    return error;
  if (auto error = write_file(at + "reproduce.cpp", program_text(bad, cause, library, inputs, got, want)))
    return error;
  string text = "A divergence, as small as Assay made it.\n\n    " + line + "\n\n" + cause +
                (cause.ends_with('\n') ? "\n" : "\n\n");
  text += fmt::format(
      "Without Assay, in this folder:\n\n    c++ -std=c++17 -O1 reproduce.cpp -o reproduce{} && "
      "./reproduce{}\n\n",
      library.empty() ? "" : " -ldl", library.empty() ? "" : " recorded");
  text += library.empty()
              ? "It compares what was recorded. To try a kernel, call it in `my_kernel` of reproduce.cpp.\n"
              : fmt::format(
                    "It compares what was recorded; `./reproduce` alone runs {}, `./reproduce "
                    "./lib<yours>.so` another.\n",
                    library);
  text += "\nWith Assay:\n\n";
  if (!subject_argument.empty())
    text += fmt::format("    assay run '{0}' {1}\n    assay explain '{0}' {1}\n", line, subject_argument);
  text += "    assay check case.safetensors\n";
  return write_file(at + "README", text);
}

std::optional<Error> cannot_write_reproducer(const string& folder, std::string_view option) {
  std::error_code ignored;
  std::filesystem::path at = std::filesystem::absolute(folder, ignored);
  if (std::filesystem::exists(at, ignored) && !std::filesystem::is_directory(at, ignored))
    return Error{fmt::format("{}: cannot write into {}: it is no folder", option, folder), 0,
                 "name a folder, which is made where it is not there"};
  while (!std::filesystem::exists(at, ignored) && at.has_relative_path()) at = at.parent_path();
  if (!std::filesystem::is_directory(at, ignored))
    return Error{fmt::format("{}: cannot write into {}: {} is no folder", option, folder, at.string()), 0,
                 "name a folder whose parent can be written"};
  if (auto error = cannot_write((at / "case.safetensors").string(), option)) {
    error->hint = "name a folder that can be written";
    return error;
  }
  return {};
}

}  // namespace assay
