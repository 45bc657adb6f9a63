// Groups of matrices in shared buffers: how large the buffers are, where members stand in them, and that
// quantizing a group quantizes its members.
#include <algorithm>
#include <array>

#include "training/base/data.h"
#include "training/formats/formats.h"
#include "training/formats/ops.h"
#include "training/groups/group_quantize.h"
#include "training/groups/grouped.h"
#include "training/scenarios/common.h"
#include "training/scenarios/formats.h"
#include "training/scenarios/tables.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;
using Members = std::vector<Shape>;
using Sizes = std::vector<int64_t>;

// Three members, and what varies between them.
struct Variant {
  string_view name;
  std::array<Shape, 3> members;
  Shape logical;
  std::array<int64_t, 4> offsets;
};
constexpr std::array kVariants = {
    Variant{"uniform", {{{96, 160}, {96, 160}, {96, 160}}}, {288, 160}, {0, 15360, 30720, 46080}},
    Variant{"first dimensions vary", {{{32, 160}, {0, 160}, {160, 160}}}, {192, 160}, {0, 5120, 5120, 30720}},
    Variant{"last dimensions vary", {{{96, 32}, {96, 160}, {96, 96}}}, {96, 288}, {0, 3072, 18432, 27648}},
    Variant{"both vary", {{{32, 160}, {160, 96}, {96, 32}}}, {1, 23552}, {0, 5120, 20480, 23552}},
};
Members members_of(const Variant& v) { return {v.members.begin(), v.members.end()}; }

// Elements of data and scales of all members, and where the third one begins.
struct Golden {
  int64_t data, row_scale, col_scale, data_at, row_at, col_at;
};
struct Format {
  string_view name;
  string_view quantizer;  // none: high precision
  Arch arch;
  DType data, scale;
  std::array<Golden, 4> golden;  // by variant
  std::array<std::vector<string>, 3>
      present;  // with both usages, rows alone, columns alone; in the order of GroupedTensor::buffers
};
const std::vector<Format>& formats() {
  using B = std::vector<string>;
  const B both = {"rowwise_data", "columnwise_data", "scale_inv", "columnwise_scale_inv"},
          rows = {"rowwise_data", "scale_inv"}, cols = {"columnwise_data", "columnwise_scale_inv"};
  const auto with = [](B list, std::initializer_list<const char*> more) {
    list.insert(list.end(), more.begin(), more.end());
    return list;
  };
  const std::array<Golden, 4> per_tensor = {{{46080, 3, 3, 30720, 2, 2},
                                             {30720, 3, 3, 5120, 2, 2},
                                             {27648, 3, 3, 18432, 2, 2},
                                             {23552, 3, 3, 20480, 2, 2}}};
  const B one_plane = with(rows, {"amax", "scale"});
  static const std::vector<Format> kFormats = {
      {"high precision",
       "",
       Arch::sm100,
       DType::bfloat16,
       DType::float32,
       per_tensor,
       {B{"rowwise_data"}, B{"rowwise_data"}, B{"rowwise_data"}}},
      {"MXFP8",
       "MX",
       Arch::sm100,
       DType::uint8,
       DType::uint8,
       {{{46080, 3072, 3072, 30720, 2048, 2048},
         {30720, 3072, 3072, 5120, 1024, 1024},
         {27648, 2048, 2048, 18432, 1536, 1536},
         {23552, 2560, 2560, 20480, 2048, 2048}}},
       {both, rows, cols}},
      {"NVFP4",
       "FP4p",
       Arch::sm100,
       DType::uint8,
       DType::uint8,
       {{{23040, 4608, 6144, 15360, 3072, 4096},
         {15360, 4608, 4096, 2560, 1536, 1024},
         {13824, 3072, 4096, 9216, 2048, 3072},
         {11776, 4096, 3584, 10240, 3584, 2560}}},
       {with(both, {"amax", "columnwise_amax"}), with(rows, {"amax"}), with(cols, {"columnwise_amax"})}},
      {"blocks of 1x128",
       "BLK1",
       Arch::sm90,
       DType::uint8,
       DType::float32,
       {{{46080, 576, 480, 30720, 384, 320},
         {30720, 384, 480, 5120, 64, 160},
         {27648, 384, 288, 18432, 288, 192},
         {23552, 320, 384, 20480, 224, 352}}},
       {both, rows, cols}},
      {"blocks of 128x128",
       "BLK2",
       Arch::sm90,
       DType::uint8,
       DType::float32,
       {{{46080, 12, 24, 30720, 8, 16},
         {30720, 12, 16, 5120, 4, 8},
         {27648, 12, 16, 18432, 8, 12},
         {23552, 16, 16, 20480, 12, 12}}},
       {both, rows, cols}},
      {"delayed scaling",
       "DS",
       Arch::sm90,
       DType::uint8,
       DType::float32,
       per_tensor,
       {with(both, {"amax"}), with(rows, {"amax"}), with(cols, {"amax"})}},
      {"current scaling with transposes",
       "CS",
       Arch::sm90,
       DType::uint8,
       DType::float32,
       per_tensor,
       {with(both, {"amax", "scale"}), with(rows, {"amax", "scale"}), with(cols, {"amax", "scale"})}},
      {"current scaling without transposes",
       "CS",
       Arch::sm100,
       DType::uint8,
       DType::float32,
       per_tensor,
       {one_plane, one_plane, one_plane}},
  };
  return kFormats;
}

QuantizerPtr quantizer_of(const Format& format, Usages usages = {true, true}) {
  return format.quantizer.empty() ? nullptr : quantizer_named(format.quantizer, usages);
}
GroupedTensorPtr group_of(Session& session, const Format& format, const Members& members,
                          Usages usages = {true, true}) {
  return make_grouped_tensor_with_shapes(session, members, quantizer_of(format, usages),
                                         format.quantizer.empty() ? format.data : DType::float32);
}
template <class Each> void in_every_cell(ScenarioRun& run, Each each) {
  for (const Format& format : formats())
    for (size_t v = 0; v < kVariants.size(); ++v) {
      run.about(string(format.name) + ", " + string(kVariants[v].name));
      Session session = run.session(format.arch);
      each(session, format, kVariants[v], format.golden[v]);
    }
}

// --- S-67 ---

void s67(ScenarioRun& run) {
  in_every_cell(
      run, [&](Session& session, const Format& format, const Variant& variant, const Golden& golden) {
        for (size_t u = 0; u < 3; ++u) {
          const Usages usages{u != 2, u != 1};
          const GroupedTensorPtr g = group_of(session, format, members_of(variant), usages);
          const string when = "usages " + text(usages) + ": ";
          std::vector<string> present;
          for (const Field& f : g->buffers()) {
            const ArrayPtr& b = *f.slot;
            if (!b) continue;
            present.push_back(f.name);
            const bool data = f.name.ends_with("data"), scales = f.name.ends_with("scale_inv");
            const int64_t count = data                    ? golden.data
                                  : f.name == "scale_inv" ? golden.row_scale
                                  : scales                ? golden.col_scale
                                                          : 3;
            run.expect_equal(b->count(), count, when + "elements of " + f.name);
            run.expect_equal(name_of(b->dtype),
                             name_of(data     ? format.data
                                     : scales ? format.scale
                                              : DType::float32),
                             when + "dtype of " + f.name);
          }
          run.expect_equal(present, format.present[u], when + "buffers");
          run.expect_equal(int64_t{g->scale_inv && g->scale_inv == g->columnwise_scale_inv},
                           int64_t{format.name == "current scaling with transposes" && u == 0},
                           when + "one buffer of scales");
          run.expect(g->logical_shape == variant.logical, when + "logical shape");
          run.expect(g->offsets && std::ranges::equal(*g->offsets, variant.offsets), when + "host offsets");
          const bool uniform = &variant == &kVariants[0];
          run.expect_equal(int64_t{g->tensor_offsets != nullptr}, int64_t{!uniform}, when + "device offsets");
          if (g->tensor_offsets)
            run.expect(std::ranges::equal(int64_values(*g->tensor_offsets), variant.offsets),
                       when + "device offsets begin with 0 and end with the total");
          for (const auto& [offsets, buffer] : {std::pair{g->scale_inv_offsets, g->scale_inv},
                                                {g->columnwise_scale_inv_offsets, g->columnwise_scale_inv}})
            if (offsets)
              run.expect(offsets->size() == 4 && offsets->front() == 0 && offsets->back() == buffer->count(),
                         when + "scale offsets begin with 0 and end with the total");
        }
      });

  run.about("row-scaled NVFP4");
  Session session = run.session();
  const auto row_scaled = [&](bool rows, bool cols) {
    return make_grouped_tensor_with_shapes(session, members_of(kVariants[1]),
                                           quantizer_named("FP4rs", {rows, cols}));
  };
  run.expect_equal(row_scaled(true, false)->amax->count(), 192, "an amax for every row");
  run.expect_error(ErrorClass::value_error, "with columns", [&] { row_scaled(true, true); }, {"columnwise"});
  run.expect_error(ErrorClass::value_error, "without rows", [&] { row_scaled(false, true); }, {"rowwise"});
}

// --- S-68 ---

struct Part {
  string name;
  ArrayPtr member, whole;
  int64_t at;  // elements before it
};
// The third member's buffers, each with the group's that holds it and where it begins there.
std::vector<Part> third_member(GroupedTensor& g, const Golden& golden) {
  if (const ArrayPtr* x = std::get_if<ArrayPtr>(&g.quantized_tensors[2]))
    return {{"values", *x, g.rowwise_data, golden.data_at}};
  std::vector<Part> out;
  for (const Field& f : std::get<StoragePtr>(g.quantized_tensors[2])->fields()) {
    if (!*f.slot) continue;
    const bool data = f.name.ends_with("data") || f.name == "_transpose",
               cols = f.name.find("columnwise") != string::npos || f.name == "_transpose",
               amax = f.name.find("amax") != string::npos;
    const ArrayPtr of_rows = data ? g.rowwise_data : amax ? g.amax : g.scale_inv;
    const ArrayPtr whole = !cols  ? of_rows
                           : data ? g.columnwise_data
                           : amax ? g.columnwise_amax
                                  : g.columnwise_scale_inv;
    out.push_back({f.name, *f.slot, whole,
                   data   ? golden.data_at
                   : amax ? 2
                   : cols ? golden.col_at
                          : golden.row_at});
  }
  return out;
}

void s68(ScenarioRun& run) {
  in_every_cell(
      run, [&](Session& session, const Format& format, const Variant& variant, const Golden& golden) {
        const GroupedTensorPtr g = group_of(session, format, members_of(variant));
        for (const Part& p : third_member(*g, golden)) {
          const int64_t size = bytes_of(p.member->dtype);
          if (!run.expect(share_memory(*p.member, *p.whole), p.name + " is a view of the group's buffer"))
            continue;
          run.expect_equal(p.member->data() - p.whole->data(), p.at * size, "bytes before " + p.name);
          const std::byte before{0x11}, written{0xA5};
          std::ranges::fill(p.whole->bytes(), before);
          std::ranges::fill(p.member->bytes(), written);
          const std::span<std::byte> flat = p.whole->bytes();
          int64_t changed = 0, misplaced = 0;
          for (size_t i = 0; i < flat.size(); ++i) {
            const bool inside = static_cast<int64_t>(i) >= p.at * size &&
                                static_cast<int64_t>(i) < (p.at + p.member->count()) * size;
            changed += flat[i] == written;
            misplaced += (flat[i] == written) != inside;
          }
          run.expect_equal(changed, p.member->count() * size,
                           "bytes of the buffer that a write through " + p.name + " changes");
          run.expect_equal(misplaced, 0,
                           "bytes of the buffer that are changed or spared by mistake, of " + p.name);
          flat[static_cast<size_t>(p.at * size)] = before;
          run.expect(p.member->bytes().front() == before, "a write to the buffer shows in " + p.name);
        }
      });
}

// --- S-69 ---

// Tensors of unlike magnitudes, so that no two members share a scale.
ArrayPtr member_data(Shape shape, size_t i) {
  const Dims dims = {shape.rows, shape.cols};
  return i % 2 ? gradient(dims, DType::bfloat16, 50 + i)
               : drawn(dims, DType::bfloat16, 50 + i, FillKind::wide);
}
std::vector<ArrayPtr> data_of(const Members& members) {
  std::vector<ArrayPtr> out;
  for (size_t i = 0; i < members.size(); ++i) out.push_back(member_data(members[i], i));
  return out;
}

// A quantizer for one member alone: delayed scaling notes its amax in a place of its own.
QuantizerPtr alone(const QuantizerPtr& q) {
  const QuantizerPtr out = q->copy();
  if (auto* fp8 = dynamic_cast<Float8Quantizer*>(out.get())) fp8->amax = zeros({1}, DType::float32);
  return out;
}

// The group's flat buffers against what each member quantized alone holds, found by summing up the members'
// own sizes.
void expect_members(ScenarioRun& run, Session& session, GroupedTensor& g, const QuantizerPtr& q,
                    const std::vector<ArrayPtr>& tensors) {
  const std::vector<std::pair<string_view, ArrayPtr>> places = {
      {"_data", g.rowwise_data},
      {"_transpose", g.columnwise_data},
      {"_scale_inv", g.scale_inv ? g.scale_inv : g.columnwise_scale_inv},
      {"_rowwise_data", g.rowwise_data},
      {"_columnwise_data", g.columnwise_data},
      {"_rowwise_scale_inv", g.scale_inv},
      {"_columnwise_scale_inv", g.columnwise_scale_inv},
      {"_amax_rowwise", g.amax},
      {"_amax_columnwise", g.columnwise_amax}};
  std::vector<int64_t> at(places.size(), 0);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i]->count() == 0 &&
        !dynamic_cast<BlockScaledStorage*>(std::get<StoragePtr>(g.quantized_tensors[i]).get())) {
      ++at[2];  // the place of its scale, which has no value
      continue;
    }
    if (tensors[i]->count() == 0) {
      for (const size_t amax : {size_t{7}, size_t{8}}) ++at[amax];
      continue;
    }
    const QuantizerPtr one = alone(q);
    const StoragePtr want = one->quantize(session, tensors[i]);
    const string who = "member " + std::to_string(i) + " of " + std::to_string(tensors[i]->shape[0]) + "x" +
                       std::to_string(tensors[i]->shape[1]) + ": ";
    for (const Field& f : want->fields()) {
      if (!*f.slot) continue;
      const auto place = static_cast<size_t>(
          std::ranges::find(places, f.name, &std::pair<string_view, ArrayPtr>::first) - places.begin());
      const int64_t count = (*f.slot)->count();
      const ArrayPtr& flat = places[place].second;
      if (run.expect(flat && at[place] + count <= flat->count(), who + "the group has room for " + f.name))
        run.expect_equal(slice(flat, 0, at[place], at[place] + count), view(contiguous(*f.slot), {count}),
                         who + f.name);
      at[place] += count;
    }
    if (const auto* fp8 = dynamic_cast<const Float8Quantizer*>(one.get()))
      run.expect_equal(slice(g.amax, 0, static_cast<int64_t>(i), static_cast<int64_t>(i) + 1), fp8->amax,
                       who + "amax");
  }
}

std::vector<Members> member_lists(bool with_odd) {
  Members all, first, last;
  for (const int64_t cols : {96, 128, 160})
    for (const int64_t rows : {0, 32, 96, 128, 160}) all.push_back({rows, cols});
  for (const int64_t rows : {32, 0, 160, 96, 128}) first.push_back({rows, 160});
  for (const int64_t cols : {160, 96, 128}) last.push_back({96, cols});
  std::vector<Members> out = {all, first, last, {{160, 128}, {160, 128}}};
  if (with_odd) out.push_back({{48, 80}, {48, 80}, {48, 80}}), out.push_back({{48, 80}, {80, 48}, {16, 112}});
  return out;
}

void s69(ScenarioRun& run) {
  for (const Format& format : formats()) {
    if (format.quantizer.empty()) continue;
    for (const Members& members : member_lists(format.name == "NVFP4")) {
      run.about(string(format.name) + ", " + std::to_string(members.size()) + " members");
      Session session = run.session(format.arch);
      const GroupedTensorPtr g = group_of(session, format, members);
      std::vector<const std::byte*> addresses;
      for (const Field& f : g->buffers()) addresses.push_back(*f.slot ? (*f.slot)->data() : nullptr);
      const std::vector<ArrayPtr> tensors = data_of(members);
      g->quantize(session, tensors);
      expect_members(run, session, *g, g->quantizer, tensors);
      std::vector<const std::byte*> afterwards;
      for (const Field& f : g->buffers()) afterwards.push_back(*f.slot ? (*f.slot)->data() : nullptr);
      run.expect(addresses == afterwards, "no buffer moves");
    }
  }
}

// --- S-70 ---

void s70(ScenarioRun& run) {
  Session session = run.session();
  for (const auto& [member, rows, cols] : {std::tuple{Shape{160, 128}, Dims{256, 4}, Dims{8, 128}},
                                           {Shape{96, 160}, Dims{128, 8}, Dims{4, 256}}}) {
    run.about("MXFP8 of " + std::to_string(member.rows) + "x" + std::to_string(member.cols));
    const GroupedTensorPtr g =
        make_grouped_tensor_with_shapes(session, {member, member}, quantizer_named("MX"));
    const std::vector<ArrayPtr> tensors = data_of({member, member});
    g->quantize(session, tensors);
    for (size_t i = 0; i < 2; ++i) {
      auto& m = dynamic_cast<MXFP8Storage&>(*std::get<StoragePtr>(g->quantized_tensors[i]));
      run.expect(m.rowwise_scale_inv->shape == rows, "shape of a member's rowwise scales");
      run.expect(m.columnwise_scale_inv->shape == cols && m.columnwise_scale_inv->contiguous(),
                 "shape of a member's columnwise scales");
      const StoragePtr columns = m.make_like();
      columns->update_usage(false, true);
      const StoragePtr alone_columns = quantizer_named("MX", kColumnUsage)->quantize(session, tensors[i]);
      run.expect_equal(columns->dequantize(session), alone_columns->dequantize(session, DType::float32),
                       "a member's columns, dequantized");
    }
  }
  run.about("lengths where both directions differ");
  const GroupedTensorPtr fp4_group =
      make_grouped_tensor_with_shapes(session, {{48, 80}, {48, 80}}, quantizer_named("FP4p"));
  run.expect_equal(fp4_group->scale_inv->count(), 2 * 1024, "rowwise scales of NVFP4 48x80");
  run.expect_equal(fp4_group->columnwise_scale_inv->count(), 2 * 512, "columnwise scales of NVFP4 48x80");
  const GroupedTensorPtr block_group =
      make_grouped_tensor_with_shapes(session, {{200, 384}, {200, 384}}, quantizer_named("BLK1"));
  run.expect_equal(block_group->scale_inv->count(), 2 * 600, "rowwise scales of blocks 200x384");
  run.expect_equal(block_group->columnwise_scale_inv->count(), 2 * 768,
                   "columnwise scales of blocks 200x384");

  run.about("what an entry point returns");
  const ArrayPtr x = drawn({192, 96}, DType::bfloat16, 1);
  const GroupedTensorPtr made_group =
      group_quantize(session, x, quantizer_named("MX"), 3, {.first_dims = int64_array({32, 0, 160})});
  run.expect_equal(made_group->class_name(), "GroupedTensor", "class");
  run.expect_equal(name_of(made_group->fake_dtype), "bfloat16", "dtype");
  run.expect(int64_values(*made_group->tensor_offsets) == Sizes{0, 3072, 3072, 18432},
             "offsets begin with 0 and end with the total");
  run.expect(int64_values(*splits_to_offsets({32, 0, 160}, 96)) == Sizes{0, 3072, 3072, 18432},
             "offsets from splits begin with 0 and end with the total");

  // Members of one shared quantizer have scales and amaxes of their own.
  for (const string_view name : {"CS", "DS"}) {
    run.about(string(name));
    const QuantizerPtr q = quantizer_named(name);
    const GroupedTensorPtr g = make_grouped_tensor_with_shapes(session, {{32, 64}, {32, 64}}, q);
    const std::vector<ArrayPtr> tensors = {drawn({32, 64}, DType::bfloat16, 2),
                                           gradient({32, 64}, DType::bfloat16, 3)};
    g->quantize(session, tensors);
    expect_members(run, session, *g, q, tensors);
    const ArrayPtr& of_members = name == "DS" ? g->amax : g->scale_inv;
    run.expect_different(slice(of_members, 0, 0, 1), slice(of_members, 0, 1, 2), "what the members hold");
  }
}

// --- S-71 ---

struct Fused {
  string_view name;
  string_view quantizer;
  Arch arch;
  Sizes first, last;
  int64_t n;
  Shape x;  // larger than the members where something varies
};
std::vector<Fused> fused() {
  return {
      {"current scaling, uniform", "CS", Arch::sm100, {}, {}, 3, {96, 40}},
      {"current scaling, first", "CS", Arch::sm90, {31, 0, 33}, {}, 3, {80, 40}},
      {"current scaling, last", "CS", Arch::sm90, {}, {24, 0, 72}, 3, {32, 160}},
      {"MXFP8, uniform", "MX", Arch::sm100, {}, {}, 2, {192, 96}},
      {"MXFP8, first", "MX", Arch::sm100, {32, 0, 128}, {}, 3, {224, 160}},
      {"MXFP8, last", "MX", Arch::sm100, {}, {32, 96, 160}, 3, {64, 320}},
      {"MXFP8, both", "MX", Arch::sm100, {32, 0, 96}, {96, 64, 32}, 3, {64, 160}},
      {"blocks of 1x128, uniform", "BLK1", Arch::sm90, {}, {}, 2, {256, 160}},
      {"blocks of 1x128, first", "BLK1", Arch::sm90, {128, 0, 128}, {}, 3, {384, 160}},
      {"blocks of 128x128, first", "BLK2", Arch::sm90, {128, 128}, {}, 2, {384, 160}},
      {"NVFP4 with RHT, uniform", "FP4i", Arch::sm100, {}, {}, 2, {256, 128}},
      {"NVFP4 with RHT, first", "FP4i", Arch::sm100, {128, 256}, {}, 2, {512, 128}},
  };
}
// x with every element from `used` on 1e4.
ArrayPtr poisoned(const ArrayPtr& x, int64_t used) {
  const ArrayPtr out = clone(x);
  for (size_t i = static_cast<size_t>(used) * 2; i < out->bytes().size(); i += 2)
    out->bytes()[i] = std::byte{0x1C}, out->bytes()[i + 1] = std::byte{0x46};
  return out;
}
// The members of x, one after the other.
std::vector<ArrayPtr> members_in(const ArrayPtr& x, const GroupedTensor& g) {
  const ArrayPtr flat = view(x, {x->count()});
  std::vector<ArrayPtr> out;
  int64_t at = 0;
  for (const Dims& shape : g.tensor_shapes) {
    out.push_back(clone(view(slice(flat, 0, at, at + count_of(shape)), shape)));
    at += count_of(shape);
  }
  return out;
}
void expect_equal_buffers(ScenarioRun& run, GroupedTensor& got, GroupedTensor& want, const string& what) {
  const std::vector<Field> a = got.buffers(), b = want.buffers();
  for (size_t i = 0; i < a.size(); ++i) run.expect_equal(*a[i].slot, *b[i].slot, what + ": " + a[i].name);
}

void s71(ScenarioRun& run) {
  for (const Fused& row : fused()) {
    run.about(string(row.name));
    Session session = run.session(row.arch);
    const QuantizerPtr q = quantizer_named(row.quantizer);
    GroupQuantizeOptions options{.first_dims = row.first.empty() ? nullptr : int64_array(row.first),
                                 .last_dims = row.last.empty() ? nullptr : int64_array(row.last)};
    const ArrayPtr drawn_x = gradient({row.x.rows, row.x.cols}, DType::bfloat16, 9);
    const GroupedTensorPtr quiet = group_quantize(session, drawn_x, q, row.n, options);
    int64_t used = 0;
    for (const Dims& shape : quiet->tensor_shapes) used += count_of(shape);
    const ArrayPtr x = poisoned(drawn_x, used);
    const size_t launches = session.launches.size();
    const GroupedTensorPtr g = group_quantize(session, x, q, row.n, options);
    run.expect_equal(static_cast<int64_t>(session.launches.size() - launches), 1, "launches");
    const std::vector<ArrayPtr> tensors = members_in(x, *g);
    expect_members(run, session, *g, q, tensors);
    expect_equal_buffers(run, *g, *quiet, "1e4 beyond the members against none");
    const bool varies = options.first_dims || options.last_dims;
    run.expect_equal(int64_t{used < x->count()}, int64_t{varies}, "there is memory beyond the members");
    if (varies) {
      run.expect_error(ErrorClass::runtime_error, "a destination whose members vary", [&] {
        GroupQuantizeOptions again = options;
        again.output = g;
        group_quantize(session, x, q, row.n, again);
      });
      continue;
    }
    const ArrayPtr y = drawn({row.x.rows, row.x.cols}, DType::bfloat16, 10, FillKind::wide);
    const GroupedTensorPtr fresh = group_quantize(session, y, q, row.n);
    std::vector<ArrayPtr> slots, kept;
    for (const Field& f : g->buffers())
      slots.push_back(*f.slot), kept.push_back(*f.slot ? clone(*f.slot) : nullptr);
    group_quantize(session, y, q, row.n, {.noop = 0x3F800000, .output = g});
    const bool deaf = row.quantizer == "FP4i";  // kernels of NVFP4 are not handed the flag
    for (size_t i = 0; i < kept.size(); ++i)
      run.expect_equal(slots[i], deaf ? *fresh->buffers()[i].slot : kept[i],
                       "under a noop flag: " + g->buffers()[i].name);
    const GroupedTensorPtr same = group_quantize(session, y, q, row.n, {.noop = 0, .output = g});
    run.expect(same == g, "the destination is what comes back");
    for (size_t i = 0; i < slots.size(); ++i)
      run.expect(*g->buffers()[i].slot == slots[i], "the destination keeps its " + g->buffers()[i].name);
    expect_equal_buffers(run, *g, *fresh, "a destination reused against a new one");
    run.expect_error(ErrorClass::runtime_error, "a destination of another quantizer object",
                     [&] { group_quantize(session, y, q->copy(), row.n, {.output = g}); }, {"quantizer"});
  }

  // One member is reduced over the group exactly as several are.
  for (const int64_t n : {int64_t{1}, int64_t{3}}) {
    run.about("current scaling over a group, members: " + std::to_string(n));
    Session session = run.session(Arch::sm90);
    const auto group = std::make_shared<ProcessGroup>();
    group->name = "G";
    group->all_reduce_max = [](std::span<F32Bits> values) {
      for (F32Bits& v : values) v = std::max(v, F32Bits{0x46000000});
    };
    const QuantizerPtr q = quantizer_named("CS");
    set_amax_reduction_group(*q, group);
    const ArrayPtr x = gradient({96, 40}, DType::bfloat16, 9);
    const GroupedTensorPtr g = group_quantize(session, x, q, n);
    run.expect_equal(static_cast<int64_t>(session.collectives.size()), 1, "reductions");
    expect_members(run, session, *g, q, members_in(x, *g));
    const GroupedTensorPtr local = group_quantize(session, x, quantizer_named("CS"), n);
    run.expect_different(g->scale_inv, local->scale_inv, "the scales of this rank alone");
  }
}

// --- S-72 ---

string shape_text(const Dims& shape) {
  string out;
  for (const int64_t d : shape) out += (out.empty() ? "" : "x") + std::to_string(d);
  return out;
}
// "5x16 over 16x5": a piece's logical shape and its plane's.
std::vector<string> pieces_text(const std::vector<Piece>& pieces, bool hybrid) {
  std::vector<string> out;
  for (const Piece& p : pieces) {
    const StoragePtr* s = std::get_if<StoragePtr>(&p);
    if (!s) {
      out.push_back("plain");
      continue;
    }
    const Storage& child = hybrid ? *dynamic_cast<HybridStorage&>(**s).columnwise_storage : **s;
    const auto& fp8 = dynamic_cast<const Float8Storage&>(child);
    out.push_back(shape_text((*s)->size()) + " over " + shape_text(fp8.transpose->shape) +
                  (fp8.data || fp8.transpose_invalid ? ", and more" : ""));
  }
  return out;
}

void s72(ScenarioRun& run) {
  Session session = run.session(Arch::sm90);
  const ArrayPtr x = gradient({12, 16}, DType::bfloat16, 1);
  const StoragePtr columns = quantizer_named("CS")->quantize(session, x);
  columns->update_usage(false, true);
  const auto parent = hybrid_named("H(MX|CS)");
  HybridStorage hybrid(nullptr, columns, parent, DType::bfloat16);
  const ArrayPtr values = columns->dequantize(session);
  for (const bool wrapped : {false, true}) {
    run.about(wrapped ? "a hybrid of columns alone" : "a transpose alone");
    Storage& s = wrapped ? static_cast<Storage&>(hybrid) : *columns;
    const std::vector<Piece> rows = split(session, s, 5, 0);
    run.expect_equal(pieces_text(rows, wrapped), {"5x16 over 16x5", "5x16 over 16x5", "2x16 over 16x2"},
                     "pieces of 5 rows");
    int64_t at = 0;
    for (const Piece& p : rows) {
      const ArrayPtr piece = std::get<StoragePtr>(p)->dequantize(session);
      run.expect_equal(piece, clone(slice(values, 0, at, at + piece->shape[0])),
                       "values of rows from " + std::to_string(at));
      at += piece->shape[0];
    }
    if (wrapped) {
      run.expect_equal(static_cast<int64_t>(std::get<StoragePtr>(rows[0])->fields().size()),
                       static_cast<int64_t>(hybrid.fields().size()), "buffers of a piece");
      const std::vector<Piece> others = split(session, s, 6, 1);
      for (const Piece& p : others)
        run.expect(std::holds_alternative<ArrayPtr>(p), "a hybrid's columns are cut in plain values");
      run.expect_equal(clone(std::get<ArrayPtr>(others[2])), clone(slice(values, 1, 12, 16)),
                       "values of the last columns");
      continue;
    }
    const std::vector<Piece> cols = split(session, s, 6, 1);
    run.expect_equal(pieces_text(cols, false), {"12x6 over 6x12", "12x6 over 6x12", "12x4 over 4x12"},
                     "pieces of 6 columns");
    for (size_t i = 0; i < cols.size(); ++i) {
      const auto from = static_cast<int64_t>(i) * 6;
      run.expect_equal(std::get<StoragePtr>(cols[i])->dequantize(session),
                       clone(slice(values, 1, from, std::min<int64_t>(from + 6, 16))),
                       "values of columns from " + std::to_string(from));
    }
    auto& first = dynamic_cast<Float8Storage&>(*std::get<StoragePtr>(cols[0]));
    run.expect(share_memory(*first.transpose, *dynamic_cast<Float8Storage&>(*columns).transpose),
               "a piece shares its plane's memory");
  }
}

// --- S-77 ---

// Every buffer of `want`, in whatever shape `got` holds it: columns of NVFP4 come as matrices from kernels.
void expect_equal_fields(ScenarioRun& run, Storage& got, Storage& want, const string& who) {
  const std::vector<Field> a = got.fields(), b = want.fields();
  for (size_t i = 0; i < b.size(); ++i)
    if (*b[i].slot)
      run.expect_equal(*a[i].slot ? view(contiguous(*a[i].slot), (*b[i].slot)->shape) : nullptr,
                       contiguous(*b[i].slot), who + ": " + b[i].name);
}

void s77(ScenarioRun& run) {
  for (const Format& format : formats()) {
    run.about(string(format.name));
    Session session = run.session(format.arch);
    const Members members = {{160, 96}, {160, 96}, {160, 96}};
    const std::vector<ArrayPtr> values = data_of(members);
    if (format.quantizer.empty()) {
      const GroupedTensorPtr packed = make_grouped_tensor_from_rowwise_data(
          3, {160, 96}, clone(view(concatenate(values), {3 * 160 * 96})));
      for (size_t i = 0; i < 3; ++i)
        run.expect_equal(clone(std::get<ArrayPtr>(packed->quantized_tensors[i])), values[i],
                         "separate weight " + std::to_string(i));
      run.expect_equal(packed->view({-1}), view(concatenate(values), {3 * 160 * 96}), "packed weight");
      continue;
    }
    // Separate weights go into a packed one, whose members come out as separate weights again; then all the
    // way back.
    const QuantizerPtr q = quantizer_of(format);
    std::vector<StoragePtr> separate;
    for (const ArrayPtr& v : values) separate.push_back(alone(q)->quantize(session, v));
    const auto member = [](const GroupedTensorPtr& g, size_t i) {
      return std::get<StoragePtr>(g->quantized_tensors[i]);
    };
    const auto through_checkpoint = [](const StoragePtr& s) {
      const StoragePtr out = unpickled(pickled(*s));
      out->update_usage(true, true);  // a checkpoint keeps a transpose only where there is no data
      return out;
    };
    const GroupedTensorPtr packed = make_grouped_tensor_with_shapes(session, members, q, DType::bfloat16),
                           again = make_grouped_tensor_with_shapes(session, members, q, DType::bfloat16);
    for (size_t i = 0; i < 3; ++i) member(packed, i)->copy_from_storage(*through_checkpoint(separate[i]));
    for (size_t i = 0; i < 3; ++i) {
      const string who = "weight " + std::to_string(i);
      const StoragePtr loaded = through_checkpoint(member(packed, i));
      expect_equal_fields(run, *member(packed, i), *separate[i], "packed " + who);
      expect_equal_fields(run, *loaded, *separate[i], "separate " + who);
      run.expect_equal(loaded->dequantize(session, DType::float32),
                       separate[i]->dequantize(session, DType::float32), "values of separate " + who);
      member(again, i)->copy_from_storage(*loaded);
    }
    for (const char* buffer : {"rowwise_data", "columnwise_data", "scale_inv", "columnwise_scale_inv"})
      for (size_t b = 0; b < again->buffers().size(); ++b)
        if (const Field now = again->buffers()[b]; now.name == buffer)
          run.expect_equal(*now.slot, *packed->buffers()[b].slot, "packed again: " + now.name);
  }
}

constexpr Scenario kGroupedScenarios[] = {
    {"S-67",
     "Sizes of grouped buffers",
     "every format, four ways in which members may vary, all usages",
     "a group is made",
     "its buffers exist, and have the sizes, types and offsets of a golden table",
     s67,
     {}},
    {"S-68",
     "Members are views",
     "a group in every format",
     "bytes are written through a member, and through the group",
     "they show in the other, from the member's own byte offset on and nowhere else",
     s68,
     {}},
    {"S-69",
     "A group quantizes its members",
     "members of unlike sizes, none among them",
     "the group is quantized in place",
     "data and each member's padded scales are those of the member quantized alone",
     s69,
     {}},
    {"S-70",
     "Defects that groups once had",
     "shapes that tell the directions apart, and one quantizer for all",
     "groups are made and quantized",
     "columnwise scales have their own shape and length, offsets begin at 0, members share no scale",
     s70,
     {}},
    {"S-71",
     "One launch for a group",
     "members in a larger tensor whose rest holds 1e4",
     "the fused entry quantizes them, anew, into a destination, under a flag, over a group",
     "every member is as quantized alone; a destination stays where it is",
     s71,
     {}},
    {"S-72",
     "Cutting a transpose",
     "per-tensor FP8 that holds its transpose alone, bare and in a hybrid",
     "it is split along each dimension",
     "pieces have logical shapes over cut planes, and the values of the whole",
     s72,
     {}},
    {"S-77",
     "Packed and separate weights",
     "three weights, separate and packed",
     "checkpoints convert them, both ways",
     "every byte survives",
     s77,
     {}},
};

}  // namespace

std::span<const Scenario> grouped_scenarios() { return kGroupedScenarios; }

}  // namespace assay::training
