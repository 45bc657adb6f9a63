// The file that says how somebody's PTX is launched (docs/ptx.md): JSON, read and checked as far as that goes
// without a case.
//
//   { "ptx": "quantize.ptx",                      beside the file; a launch may name another
//     "for": "quantize mxfp8 bf16 dir=row",       words that the canonical line of a case must have
//     "alignment": 16,                            what the compiler was promised of every pointer
//     "zeroed": ["row.scale_inv"],                outputs that are zero before the first launch, as
//                                                 torch.zeros makes them
//     "launches": [{ "entry": "mxfp8_rows", "grid": "rows, cdiv(cols, 128)", "block":
//     128, "shared": 0,
//                    "args": ["x", "row.data", "row.scale_inv", "i32:cols", "null"] }] }
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/subjects/ptx_expression.h"
#include "contract/result.h"

namespace assay {

// One argument: "x" is {plane, "x"}, "i32:rows*cols" is {i32, "rows*cols"}.
struct PtxArgument {
  enum class What : uint8_t {
    plane,
    null,
    zeros,
    i32,
    u32,
    i64,
    u64,
    f32,
    bf16,
    bytes,
    scratch,
    poison,
    raw,    // the tensor that the line's fill draws, of which a fused kernel makes x
    drawn,  // another tensor of x's encoding: "drawn.gamma:cols"
    map     // a tensor map: "tensormap:x,box=32x64"; its words are in `text`, the plane is the name. Or of
            // memory that launches share, "tensormap:scratch.turned:rows*cols*2,box=..": see `size`
  } what = What::plane;
  std::string text;     // a plane's name, an expression, or digits
  std::string name;     // of memory that launches share: "scratch.partial:rows*4"
  std::string size;     // of a map of such memory: its bytes, as an expression; empty for a plane
  std::string spelled;  // as it stands in the file
  // What an integer of its type may be: of i32, u32, i64, u64, or of a size of memory.
  Bounds bounds() const;
};

struct PtxLaunch {
  std::string ptx;  // the path of its text
  std::string entry;
  std::array<std::string, 3> grid, block;  // expressions; an empty block is the entry's .reqntid
  std::string shared = "0";
  std::vector<PtxArgument> args;
  std::string where;  // "mine.json: launches[0]"; empty where it was typed
  // What an error calls one of its keys: "mine.json: launches[0].grid", "--grid".
  std::string called(std::string_view key) const {
    return where.empty() ? "--" + std::string(key) : where + "." + std::string(key);
  }
  std::string called(const PtxArgument& a) const {
    return called("args") + ": argument \"" + a.spelled + "\"";
  }
};

struct PtxLaunchFile {
  std::string ptx;                 // the path of the text, from the folder of the file
  std::vector<std::string> words;  // "for"
  int64_t alignment = 1;
  std::vector<std::string> zeroed;
  // Bulk stores read shared memory when they are issued: for kernels that write it again without a wait.
  bool stores_at_once = false, products_at_once = false;
  bool shuffles_any = false;       // a shuffle may read a lane that takes no part
  bool generic_as_shared = false;  // .shared may be given a generic address, whose lower half counts
  std::vector<PtxLaunch> launches;
  // Whether a kernel makes x itself: then x is an output of the launches, and what the op is judged by.
  bool fused() const { return names("raw"); }
  // Whether a launch is given this argument, as it is spelled.
  bool names(std::string_view argument) const;
  // The planes that the launches are given, themselves or by tensor maps, each once.
  std::vector<std::string> planes() const;
};

// One launch as it is typed behind a line: --ptx FILE --entry NAME --grid .. --block .. --shared .. --args ..
struct PtxLaunchWords {
  std::string ptx, entry, grid, block, shared, args, zeroed;
  bool empty() const { return ptx.empty(); }
};
// The same as a launch file with this launch alone; an empty entry stands for the only one of the text.
// Error: no grid, an argument of an unknown kind, a size that no line can have, an output to zero that is
// not given to the launch.
Result<PtxLaunchFile> launch_file_of(const PtxLaunchWords&);
// Error: words of a launch without --ptx.
std::optional<Error> check_words(const PtxLaunchWords&);
// The words as options, quoted for a shell.
std::string to_options(const PtxLaunchWords&);

// Error: no readable file, no JSON, an unknown key, a value of the wrong kind, and those of launch_file_of.
Result<PtxLaunchFile> read_ptx_launch_file(const std::string& path);

}  // namespace assay
