// N17 against bytes of real libraries: every module of fixtures/packs/libraries, under the flavour whose
// choices its library makes.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compare/judge/judge.h"
#include "compare/packs/dump.h"
#include "compare/process/guarded_run.h"
#include "contract/line.h"
#include "reference/subject.h"
#include "tests/source_path.h"

namespace assay {
namespace {

// What is added to the lines of a module's cases. `apart`: differing elements that are expected, by case and
// plane.
struct Module {
  std::string name, keys;
  std::map<std::string, int64_t> apart = {};
};

std::string module_of(const DumpCase& c) {  // "step0/mxfp8.floor/input" of ".../torchao_cpu.safetensors" is
                                            // "torchao_cpu/mxfp8.floor"
  const std::string& path = c.pack->path;
  const size_t slash = path.rfind('/'), dot = path.rfind('.');
  const std::string& id = c.recorded->id;
  const size_t first = id.find('/'), last = id.rfind('/');
  return path.substr(slash + 1, dot - slash - 1) + "/" + id.substr(first + 1, last - first - 1);
}

const std::vector<Module> kModules = {
    {"compressed_tensors_cpu/mxfp4.bf16", "flavour=compressed_tensors.mxfp4"},
    {"compressed_tensors_cpu/mxfp4.bf16.edges", "flavour=compressed_tensors.mxfp4"},
    {"compressed_tensors_cpu/mxfp4.f32", "flavour=compressed_tensors.mxfp4"},
    {"compressed_tensors_cpu/mxfp4.f32.edges", "flavour=compressed_tensors.mxfp4"},
    {"compressed_tensors_cpu/mxfp8.bf16", "flavour=compressed_tensors.mx"},
    {"compressed_tensors_cpu/mxfp8.bf16.edges", "flavour=compressed_tensors.mx"},
    {"compressed_tensors_cpu/mxfp8.f32", "flavour=compressed_tensors.mx"},
    {"compressed_tensors_cpu/mxfp8.f32.edges", "flavour=compressed_tensors.mx"},
    {"compressed_tensors_cpu/nvfp4.bf16", "flavour=compressed_tensors.nvfp4_in_source"},
    {"compressed_tensors_cpu/nvfp4.bf16.edges", "flavour=compressed_tensors.nvfp4_in_source"},
    {"compressed_tensors_cpu/nvfp4.f32", "flavour=compressed_tensors.nvfp4"},
    {"compressed_tensors_cpu/nvfp4.f32.edges",
     "flavour=compressed_tensors.nvfp4"},  // 2688 times 1/448 is 6.0000005
    {"compressed_tensors_0_11/fp8_current.channel.bf16.zeros",
     "flavour=compressed_tensors.fp8_clamped_in_source"},
    {"compressed_tensors_0_11/fp8_current.channel.f32.zeros", "flavour=compressed_tensors.fp8_clamped"},
    {"compressed_tensors_zeros/fp8_current.channel.bf16.zeros",
     "flavour=compressed_tensors.fp8_epsilon_in_source"},
    {"compressed_tensors_zeros/fp8_current.channel.f32.zeros", "flavour=compressed_tensors.fp8_epsilon"},
    {"compressed_tensors_fp8/fp8_block.block.bf16", "flavour=modelopt.fp8_in_source"},
    {"compressed_tensors_fp8/fp8_block.block.f32", "flavour=torchao.float8_tensor"},
    {"compressed_tensors_fp8/fp8_current.channel.bf16", "flavour=modelopt.fp8_in_source"},
    {"compressed_tensors_fp8/fp8_current.channel.f32", "flavour=onnx.fp8"},
    {"compressed_tensors_fp8/fp8_current.tensor.bf16", "flavour=modelopt.fp8_in_source"},
    {"compressed_tensors_fp8/fp8_current.tensor.f32", "flavour=onnx.fp8"},
    {"gguf_mxfp4/mxfp4.gguf.bf16", "flavour=gguf.mxfp4"},
    {"gguf_mxfp4/mxfp4.gguf.bf16.edges", "flavour=gguf.mxfp4"},
    {"gguf_mxfp4/mxfp4.gguf.f32", "flavour=gguf.mxfp4"},
    {"gguf_mxfp4/mxfp4.gguf.f32.edges", "flavour=gguf.mxfp4"},
    {"gguf_nvfp4/nvfp4.gguf.bf16", "flavour=gguf.nvfp4"},
    {"gguf_nvfp4/nvfp4.gguf.bf16.edges", "flavour=gguf.nvfp4"},
    {"gguf_nvfp4/nvfp4.gguf.f32", "flavour=gguf.nvfp4"},
    {"gguf_nvfp4/nvfp4.gguf.f32.edges", "flavour=gguf.nvfp4"},
    {"gguf_nvfp4/nvfp4.gguf.scales", "flavour=gguf.nvfp4"},
    {"pytorch_2_15/fp8_delayed.e4m3", ""},
    {"pytorch_2_15/fp8_delayed.e4m3.edges", ""},
    {"pytorch_2_15/fp8_delayed.e5m2", "flavour=pytorch.eager"},
    {"pytorch_2_15/fp8_delayed.e5m2.edges", "flavour=pytorch.eager"},
    {"pytorch_2_8/fp8_delayed.e4m3", "flavour=pytorch.eager"},
    {"pytorch_2_8/fp8_delayed.e4m3.edges", "flavour=pytorch.eager"},
    {"pytorch_2_8/fp8_delayed.e5m2", "flavour=pytorch.eager"},
    {"pytorch_2_8/fp8_delayed.e5m2.edges", "flavour=pytorch.eager"},
    {"torchao_weights/fp8_block.128x128.bf16", "flavour=torchao.float8_tensor"},
    {"torchao_weights/fp8_block.128x128.f16", "flavour=torchao.float8_tensor"},
    {"torchao_weights/fp8_block.128x128.f32", "flavour=torchao.float8_tensor"},
    {"torchao_weights/fp8_block.1x128.bf16", "flavour=torchao.float8_tensor"},
    {"torchao_weights/fp8_block.1x128.f16", "flavour=torchao.float8_tensor"},
    {"torchao_weights/fp8_block.1x128.f32", "flavour=torchao.float8_tensor"},
    // A row of zeros has the scale 0, and 0 / 0 is a NaN (N17.15), whose sign x86 sets (N17.16).
    {"torchao_weights/fp8_current.row.bf16.zeros", "flavour=torchao.float8_tensor_x86"},
    {"torchao_weights/fp8_current.tensor.bf16", "flavour=torchao.float8_tensor"},
    {"torchao_weights/fp8_current.tensor.bf16.edges", "flavour=torchao.float8_tensor"},
    {"torchao_weights/fp8_current.tensor.f16", "flavour=torchao.float8_tensor"},
    {"torchao_weights/fp8_current.tensor.f16.edges", "flavour=torchao.float8_tensor"},
    {"torchao_weights/fp8_current.tensor.f32", "flavour=torchao.float8_tensor"},
    {"torchao_weights/fp8_current.tensor.f32.edges", "flavour=torchao.float8_tensor"},
    {"torchao_weights/fp8_current.weight_only.bf16", "flavour=torchao.float8_tensor"},
    {"torchao_weights/fp8_current.weight_only.f16", "flavour=torchao.float8_tensor"},
    {"torchao_weights/fp8_current.weight_only.f32", "flavour=torchao.float8_tensor"},
    {"transformers_fp8/fp8_block.transformers_float", "flavour=transformers.fp8"},
    {"transformers_fp8/fp8_block.transformers_ue8m0", "flavour=transformers.ue8m0"},
    {"triton_interpreted/fp8_block.triton_group", "flavour=triton.group"},
    {"triton_interpreted/fp8_block.triton_ue8m0", "flavour=vllm.ue8m0"},
    {"vllm_kv_cache/fp8_current.vllm_kv_token_head", "flavour=vllm.kv_cache_token_head"},
    {"vllm_kv_cache/fp8_delayed.vllm_kv_head", "flavour=vllm.kv_cache"},
    {"vllm_kv_cache/fp8_delayed.vllm_kv_tensor", "flavour=vllm.kv_cache"},
    {"gfloat_mx/mxfp4.TiesToAway", "flavour=ocp.away"},
    {"gfloat_mx/mxfp4.TiesToEven", "flavour=ocp"},
    {"gfloat_mx/mxfp8.TiesToAway", "flavour=ocp.away"},
    {"gfloat_mx/mxfp8.TiesToEven", "flavour=ocp"},
    {"gfloat_mx/mxfp8_e5m2.TiesToAway", "flavour=ocp.away"},
    {"gfloat_mx/mxfp8_e5m2.TiesToEven", "flavour=ocp"},
    {"jax_scaled/fp8_current.f32", ""},
    // Blocks of zeros are divided by a scale of 0 (mxfp8: 2^-127, flushed) and become NaN: in E2M1, which has
    // none, XLA's 8. One element of nvfp4 is -3.4999998, which XLA rounds to f16 before it casts: a tie then.
    {"jax_scaled/mxfp8.bf16", "flavour=jax.scaled_x86"},
    {"jax_scaled/mxfp8.f32", "flavour=jax.scaled_x86"},
    {"jax_scaled/nvfp4.f32", "flavour=jax.nvfp4"},
    {"ml_dtypes_mx/fp8_current.clipped", ""},
    {"ml_dtypes_mx/fp8_current.divided", "flavour=onnx.fp8"},
    {"ml_dtypes_mx/mxfp4.ceil", "flavour=torchao.rceil"},
    {"ml_dtypes_mx/mxfp4.floor", "flavour=ocp"},
    {"ml_dtypes_mx/mxfp8.ceil", "flavour=torchao.rceil"},
    {"ml_dtypes_mx/mxfp8.floor", "flavour=ocp"},
    {"onnx_reference/fp8_current.tensor", "flavour=onnx.fp8"},
    {"onnx_reference/mxfp4.down", "flavour=triton.down"},
    {"onnx_reference/mxfp4.nearest", "flavour=onnx.nearest"},
    {"onnx_reference/mxfp4.up", "flavour=torchao.rceil"},
    {"onnx_reference/mxfp8.down", "flavour=triton.down"},
    {"onnx_reference/mxfp8.nearest", "flavour=onnx.nearest"},
    {"onnx_reference/mxfp8.up", "flavour=torchao.rceil"},
    {"torchao_cpu/fp8_current.clamped", "flavour=torchao.float8"},
    {"torchao_cpu/mxfp4.ceil", "flavour=torchao.ceil"},
    {"torchao_cpu/mxfp4.even", "flavour=torchao.even"},
    {"torchao_cpu/mxfp4.floor", "flavour=ocp"},
    {"torchao_cpu/mxfp4.rceil", "flavour=torchao.rceil"},
    {"torchao_cpu/mxfp8.ceil", "flavour=torchao.ceil"},
    {"torchao_cpu/mxfp8.columns", "flavour=torchao.rceil"},
    {"torchao_cpu/mxfp8.columns_swizzled", "flavour=torchao.rceil"},
    {"torchao_cpu/mxfp8.even", "flavour=torchao.even"},
    {"torchao_cpu/mxfp8.floor", "flavour=ocp"},
    {"torchao_cpu/mxfp8.rceil", "flavour=torchao.rceil"},
    {"torchao_cpu/nvfp4.one_level", "flavour=torchao.nvfp4_one_level"},
    {"torchao_cpu/nvfp4.two_level", "flavour=torchao.nvfp4"},
    // The scale of a bf16 tensor is a bf16 number, and so is the quotient that is cast.
    {"modelopt_cpu/fp8_current.modelopt_bf16", "flavour=modelopt.fp8_in_source"},
    {"modelopt_cpu/fp8_current.modelopt_bf16.edges", "flavour=modelopt.fp8_in_source"},
    {"modelopt_cpu/fp8_current.modelopt_f32", "flavour=onnx.fp8"},
    {"modelopt_cpu/fp8_current.modelopt_f32.edges", "flavour=onnx.fp8"},
    {"modelopt_cpu/mxfp4.modelopt", "flavour=modelopt.mxfp4"},
    {"modelopt_cpu/mxfp4.modelopt.edges", "flavour=modelopt.mxfp4"},
    {"modelopt_cpu/mxfp8.modelopt", ""},
    {"modelopt_cpu/mxfp8.modelopt.edges", ""},
    {"modelopt_cpu/nvfp4.modelopt", "flavour=modelopt.nvfp4"},
    {"modelopt_cpu/nvfp4.modelopt.edges", "flavour=modelopt.nvfp4"},
    {"torchao_float8/fp8_block.128x128", "flavour=torchao.blockwise"},
    {"torchao_float8/fp8_block.1x128", "flavour=torchao.blockwise"},
    {"torchao_float8/fp8_current.float8", "flavour=torchao.float8"},
    {"torchao_float8/fp8_current.float8.zeros", "flavour=torchao.float8"},
    {"torchao_float8/fp8_current.float8_columns", "flavour=torchao.float8"},
    {"torchao_float8/fp8_current.float8_columns_pow2", "flavour=torchao.float8"},
    {"torchao_float8/fp8_current.float8_pow2", "flavour=torchao.float8"},
    {"torchao_float8/fp8_current.float8_pow2.zeros", "flavour=torchao.float8"},
    {"torchao_float8/fp8_current.float8_rows", "flavour=torchao.float8"},
    {"torchao_float8/fp8_current.float8_rows_pow2", "flavour=torchao.float8"},
    {"vllm_cpu/fp8_block.deepgemm", "flavour=deepgemm"},
    {"vllm_cpu/fp8_block.deepgemm_ue8m0", "flavour=deepgemm.ue8m0"},
    {"vllm_cpu/fp8_current.vllm_tensor", "flavour=vllm.dynamic"},
    {"vllm_cpu/fp8_current.vllm_tensor.edges", "flavour=vllm.dynamic"},
    {"vllm_cpu/fp8_current.vllm_token", "flavour=vllm.dynamic"},
    {"vllm_cpu/fp8_current.vllm_token.edges", "flavour=vllm.dynamic"},
    {"vllm_cpu/mxfp4.deepgemm", "flavour=deepgemm.fp4"},
    {"vllm_cpu/mxfp4.triton_down", "flavour=quark.old"},
    {"vllm_cpu/mxfp4.triton_down.edges", "flavour=quark.old"},
    {"vllm_cpu/mxfp4.triton_up", "flavour=triton.mxfp4"},
    {"vllm_cpu/mxfp4.triton_up.edges", "flavour=triton.mxfp4"},
    {"vllm_cpu/mxfp8.triton_down", "flavour=triton.down"},
    {"vllm_cpu/mxfp8.triton_down.edges", "flavour=triton.down"},
    {"vllm_cpu/mxfp8.triton_up", ""},
    {"vllm_cpu/mxfp8.triton_up.edges", ""},
    {"vllm_cpu/mxfp8.vllm", ""},
    {"vllm_cpu/mxfp8.vllm.edges", ""},
    {"vllm_cpu/nvfp4.vllm", "flavour=vllm.nvfp4"},
    // Under a scale of 0 the multiplier is 1e-8: small elements keep their sign, zeros lose it.
    {"vllm_cpu/nvfp4.vllm.edges", "flavour=vllm.nvfp4"},
};

// Elements of a case's planes that the reference makes otherwise under `keys`, by "<role>/<plane>".
std::map<std::string, int64_t> apart(const DumpCase& c, const std::string& keys) {
  Subjects subjects;
  subjects.owned.push_back(make_reference_subject());
  const Result<Problem> p = parse_line(c.recorded->line + " " + keys);
  if (!p) {
    ADD_FAILURE() << c.where() << ": " << p.error().text();
    return {};
  }
  const auto inputs = dump_inputs(*c.recorded, *p, subjects.reference());
  if (!inputs) {
    ADD_FAILURE() << c.where() << ": " << inputs.error().text();
    return {};
  }
  const Execution made = execute(subjects.reference(), *p, *inputs, Environment{});
  std::map<std::string, int64_t> out;
  size_t judged = 0;
  for (const PlaneData& want : made.planes) {
    const PackPlane* recorded = c.recorded->find(want.plane.name);
    if (!recorded || !recorded->tensor) continue;
    const auto got = dump_plane(*recorded->tensor, want.plane, &want);
    if (!got) {
      ADD_FAILURE() << c.where() << ": " << got.error().text();
      continue;
    }
    ++judged;
    const Judgement j = judge(&*p, {*got}, {want});
    EXPECT_EQ(j.error, "");
    if (j.cause)
      out[c.recorded->id.substr(c.recorded->id.rfind('/') + 1) + "/" + want.plane.name] = j.cause->differ;
  }
  EXPECT_GT(judged, 0u) << c.where();
  return out;
}

TEST(LibraryPacks, FlavoursMakeTheirBytes) {
  const Result<Dump> dump = read_dump({source_path("fixtures/packs/libraries")});
  ASSERT_TRUE(dump) << dump.error().text();
  std::map<std::string, std::map<std::string, int64_t>> found;
  for (const DumpCase& c : dump->cases) {
    const std::string name = module_of(c);
    const auto row = std::ranges::find(kModules, name, &Module::name);
    if (row == kModules.end()) {
      ADD_FAILURE() << name << " has no row here: which flavour makes its bytes?";
      continue;
    }
    found[name].merge(apart(c, row->keys));
  }
  for (const Module& m : kModules) {
    ASSERT_TRUE(found.contains(m.name)) << m.name;
    EXPECT_EQ(found.at(m.name), m.apart) << m.name << " " << m.keys;
  }
}

}  // namespace
}  // namespace assay
