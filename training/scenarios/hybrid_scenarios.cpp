// S-20 to S-26, S-28 and S-29: HybridQuantizer and what GEMMs take from its tensors. S-27, what a framework
// does to them, is hybrid_storage_scenarios.cpp.
#include <algorithm>
#include <array>
#include <utility>

#include "training/base/data.h"
#include "training/formats/hybrid.h"
#include "training/formats/matmul.h"
#include "training/formats/observer.h"
#include "training/formats/ops.h"
#include "training/formats/reference_quantizers.h"
#include "training/kit/recipes.h"
#include "training/modules/linear.h"
#include "training/scenarios/common.h"
#include "training/scenarios/formats.h"
#include "training/scenarios/hybrid_storage.h"
#include "training/scenarios/tables.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;
using enum ErrorClass;

constexpr string_view kFive[] = {"CS", "MX", "BLK1", "FP4p", "ID"};

string pair_name(string_view row, string_view col, bool from_rows = false) {
  return "H(" + string(row) + "|" + string(col) + (from_rows ? ";rwdq)" : ")");
}
string_view flag(bool on) { return on ? "T" : "F"; }
const HybridStorage& hybrid_of(const StoragePtr& s) { return dynamic_cast<const HybridStorage&>(*s); }

// S-20

void construction(ScenarioRun& run) {
  const auto q = [](string_view name) { return quantizer_named(name); };
  const auto build = [](const QuantizerLike& row, const QuantizerLike& col,
                        const string& source = "original") {
    return [=] { HybridQuantizer(row, col, source); };
  };
  const QuantizerLike request = DelayedScalingRequest{}, base_request = QuantizerRequest{},
                      number = NotAQuantizer{"a number"}, none = std::monostate{};

  // In this order: each case also breaks every check that comes later.
  run.expect_error(type_error, "rows: a request, before columns that are not a quantizer",
                   build(request, number, "nowhere"), {"rowwise", "request"});
  run.expect_error(type_error, "rows: the base request", build(base_request, q("MX"), "nowhere"),
                   {"rowwise", "request"});
  run.expect_error(type_error, "rows: no quantizer, before columns that are a request",
                   build(number, request, "nowhere"), {"rowwise", "a number"});
  run.expect_error(type_error, "rows: None", build(none, request), {"rowwise", "None"});
  run.expect_error(type_error, "columns: a request", build(q("MX"), request, "nowhere"),
                   {"columnwise", "request"});
  run.expect_error(type_error, "columns: no quantizer", build(q("MX"), number, "nowhere"),
                   {"columnwise", "a number"});
  const QuantizerPtr same = q("MX");
  run.expect_error(value_error, "the same object twice, before an unknown source",
                   build(same, same, "nowhere"), {"same"});
  run.expect_error(value_error, "an unknown source", build(q("MX"), q("MX"), "nowhere"),
                   {"columnwise_source", "nowhere"});
  run.expect_equal(text(same->usages()), "TT", "usages of a quantizer that was refused");

  // Pinning changes the objects that are handed in, and nothing else of them.
  const QuantizerPtr row = q("CS"), col = q("FP4p");
  row->internal = true;
  col->optimize_for_gemm = true;
  HybridQuantizer h(row, col, "rowwise_dequantized");
  run.expect(h.rowwise_quantizer == row && h.columnwise_quantizer == col, "children", "the very objects",
             "others");
  run.expect_equal(text(row->usages()), "TF", "usages of the rows' child");
  run.expect_equal(text(col->usages()), "FT", "usages of the columns' child");
  run.expect_equal(text(h.usages()), "TT", "usages of the hybrid");
  run.expect(row->internal && !col->internal && !h.internal, "internal of rows, columns and hybrid",
             "on, off, off", "others");
  run.expect_equal(h.compatible_recipe(), "CustomRecipe", "compatible recipe");

  // A copy is as pinned, with children of its own.
  h.set_usage(false, true);
  h.internal = h.optimize_for_gemm = true;
  const QuantizerPtr copied = h.copy();
  const auto& c = dynamic_cast<const HybridQuantizer&>(*copied);
  run.expect_equal(c.describe(), h.describe(), "the copy's settings");
  run.expect(c.rowwise_quantizer != row && c.columnwise_quantizer != col, "the copy's children", "copies",
             "the same objects");
  run.expect_equal(text(c.rowwise_quantizer->usages()) + " " + text(c.columnwise_quantizer->usages()) + " " +
                       text(c.usages()),
                   "TF FT FT", "the copy's usages: rows, columns, hybrid");
  run.expect(!c.rowwise_quantizer->optimize_for_gemm, "optimize_for_gemm of the copy's rows",
             "off, as it was", "on");

  // What the classes cannot do shows later, when they are used.
  Session session = run.session(), hopper = run.session(Arch::sm90);
  const ArrayPtr x = gradient({64, 96}, DType::bfloat16, 20);
  run.expect_error(runtime_error, "row-scaled columns: quantize",
                   [&] { hybrid_named("H(MX|FP4rs)")->quantize(session, x); }, {"row_scaled"});
  const auto columns = hybrid_named("H(MX|CS)");
  run.expect_error(not_implemented_error, "per-tensor columns where GEMMs need a transpose: quantize",
                   [&] { columns->quantize(hopper, x); });
  const StoragePtr empty_one = columns->make_empty(hopper, {64, 96}, DType::bfloat16);
  run.expect_error(not_implemented_error, "per-tensor columns where GEMMs need a transpose: update",
                   [&] { columns->update_quantized(hopper, x, *empty_one, std::nullopt); });
  const auto references =
      std::make_shared<HybridQuantizer>(QuantizerPtr(std::make_shared<NVFP4QuantizerRef>()),
                                        QuantizerPtr(std::make_shared<NVFP4QuantizerRef>()));
  run.expect_error(attribute_error, "children without copy: copy", [&] { references->copy(); });
  run.expect_error(value_error, "update of a tensor that is not a hybrid", [&] {
    columns->update_quantized(session, x, *quantizer_named("MX")->quantize(session, x), std::nullopt);
  });

  // A light child makes light storages; the hybrid's own switch is its own.
  for (const bool light : {false, true}) {
    const auto h2 = hybrid_named("H(MX|BLK1)");
    h2->internal = light;
    h2->columnwise_quantizer->internal = !light;
    const StoragePtr s = h2->quantize(session, x);
    run.expect_equal(s->class_name(), light ? "HybridQuantizedTensorStorage" : "HybridQuantizedTensor",
                     "class of the result");
    run.expect_equal(hybrid_of(s).rowwise_storage->class_name(), "MXFP8Tensor", "class of its rows");
    run.expect_equal(hybrid_of(s).columnwise_storage->class_name(),
                     light ? "Float8BlockwiseQTensor" : "Float8BlockwiseQTensorStorage",
                     "class of its columns");
  }
}

// S-21

// Rows at 48, 64, 96 and 128 and columns at 80, 128 and 160 lie on both sides of what kernels of vanilla
// need: multiples of 32, 64 and 128.
void same_format_is_vanilla(ScenarioRun& run) {
  struct Row {
    string_view format;
    Arch arch;
    int64_t grain;  // what rows and columns must be multiples of
    bool bf16_only = false;
  };
  constexpr Row kRows[] = {{"CS", Arch::sm100, 1},    {"MX", Arch::sm100, 32},
                           {"BLK1", Arch::sm100, 1},  {"BLK2", Arch::sm100, 1},
                           {"BLK1", Arch::sm90, 1},   {"FP4p", Arch::sm100, 16},
                           {"FP4w", Arch::sm100, 16}, {"FP4i", Arch::sm100, 16, true}};
  for (const Row& row : kRows)
    for (const Flavour flavour : {Flavour::assay, Flavour::te})
      for (const DType dtype : {DType::bfloat16, DType::float32}) {
        if (row.bf16_only && dtype != DType::bfloat16) continue;
        for (const int64_t rows : {48, 64, 96, 128})
          for (const int64_t cols : {80, 128, 160}) {
            if (rows % row.grain != 0 || cols % row.grain != 0) continue;
            run.about(string(row.format) + " " + std::to_string(rows) + "x" + std::to_string(cols) + " " +
                      string(name_of(dtype)) + (flavour == Flavour::te ? " flavour=te" : ""));
            Session session = run.session(row.arch);
            session.flavour = flavour;
            // Kernels of MXFP8 differ in the sign of a zero (E12), which is another scenario's subject.
            const bool no_zeros = row.format == "MX" && flavour == Flavour::te;
            const ArrayPtr x =
                no_zeros ? drawn({rows, cols}, dtype, 21, FillKind::wide) : gradient({rows, cols}, dtype, 21);
            const StoragePtr vanilla = quantizer_named(row.format)->quantize(session, x);
            const size_t launches = session.launches.size();
            const StoragePtr h = quantizer_named(pair_name(row.format, row.format))->quantize(session, x);
            run.expect(session.launches.size() - launches >= 2, "launches of the hybrid",
                       "one for each direction", std::to_string(session.launches.size() - launches));
            expect_part(run, *hybrid_of(h).rowwise_storage, *vanilla, "rows");
            expect_part(run, *hybrid_of(h).columnwise_storage, *vanilla, "columns");
          }
      }
  run.about("CS on sm90");  // no columns alone: E8
  Session hopper = run.session(Arch::sm90);
  run.expect_error(not_implemented_error, "quantize", [&] {
    quantizer_named("H(CS|CS)")->quantize(hopper, gradient({64, 96}, DType::bfloat16, 21));
  });
}

// S-22

void each_direction_is_its_own_format(ScenarioRun& run) {
  const ArrayPtr x = gradient({96, 160}, DType::bfloat16, 22);
  constexpr string_view kFormats[] = {"CS", "MX", "BLK1", "FP4i",
                                      "ID"};  // RHT: columns whose amax is not the rows'
  for (const string_view row : kFormats)
    for (const string_view col : kFormats) {
      run.about(pair_name(row, col));
      Session session = run.session();
      const StoragePtr s = quantizer_named(pair_name(row, col))->quantize(session, x);
      run.expect_equal(*hybrid_of(s).rowwise_storage, *quantizer_named(row, kRowUsage)->quantize(session, x),
                       "rows");
      run.expect_equal(*hybrid_of(s).columnwise_storage,
                       *quantizer_named(col, kColumnUsage)->quantize(session, x), "columns");
      run.expect_equal(name_of(s->dtype), "bfloat16", "nominal dtype");
    }
}

// S-23

// A hybrid whose children count what they are asked, rows first.
struct Counted {
  std::shared_ptr<HybridQuantizer> q;
  std::shared_ptr<std::array<int64_t, 2>> quantized = std::make_shared<std::array<int64_t, 2>>(),
                                          updated = std::make_shared<std::array<int64_t, 2>>();
  explicit Counted(string_view name, Usages usages) {
    const auto plain = hybrid_named(name);
    const auto watched = [&](const QuantizerPtr& child, size_t i) {
      return std::make_shared<ObserverQuantizer>(
          child, [quantized = quantized, updated = updated, i](const Observation& o) {
            ++(*(o.call == "quantize" ? quantized : updated))[i];
          });
    };
    q = std::make_shared<HybridQuantizer>(QuantizerPtr(watched(plain->rowwise_quantizer, 0)),
                                          QuantizerPtr(watched(plain->columnwise_quantizer, 1)),
                                          plain->columnwise_source);
    q->set_usage(usages.rowwise, usages.columnwise);
  }
  static string counts(const std::array<int64_t, 2>& n) {
    return std::to_string(n[0]) + " " + std::to_string(n[1]);
  }
};

void columns_of_dequantized_rows(ScenarioRun& run) {
  for (const DType dtype : {DType::bfloat16, DType::float32}) {
    const ArrayPtr x = gradient({64, 96}, dtype, 23);
    for (const string_view row : kFive)
      for (const string_view col : kFive) {
        const string name = pair_name(row, col, true);
        run.about(name + " " + string(name_of(dtype)));
        Session session = run.session();
        const StoragePtr s = quantizer_named(name)->quantize(session, x),
                         rows = quantizer_named(row, kRowUsage)->quantize(session, x);
        const StoragePtr wanted =
            quantizer_named(col, kColumnUsage)->quantize(session, rows->dequantize(session, dtype));
        run.expect_equal(*hybrid_of(s).rowwise_storage, *rows, "rows");
        run.expect_equal(*hybrid_of(s).columnwise_storage, *wanted, "columns");
        if (row != col && row != "ID") {  // a format that loses bits: columns of x would be others
          const StoragePtr original = quantizer_named(col, kColumnUsage)->quantize(session, x);
          const string codes = col == "CS" ? "_data" : col == "ID" ? "_hp_data" : "_columnwise_data";
          run.expect_different(buffer(*hybrid_of(s).columnwise_storage, codes), buffer(*original, codes),
                               "columns of x itself");
        }
        const Counted alone(name, kColumnUsage);
        const StoragePtr c = alone.q->quantize(session, x);
        run.expect(!hybrid_of(c).rowwise_storage, "columns alone: rows", "absent", "present");
        run.expect_equal(*hybrid_of(c).columnwise_storage, *wanted, "columns alone");
        run.expect_equal(Counted::counts(*alone.quantized), "1 1",
                         "columns alone: calls of rows and columns");
      }
  }
}

// S-24

void a_usage_that_is_off_is_never_computed(ScenarioRun& run) {
  struct Row {
    string_view name, usages, quantized, updated;
  };
  constexpr Row kRows[] = {{"H(MX|BLK1)", "TT", "1 1", "1 1"},      {"H(MX|BLK1)", "TF", "1 0", "1 0"},
                           {"H(MX|BLK1)", "FT", "0 1", "0 1"},      {"H(MX|BLK1)", "FF", "0 0", "0 0"},
                           {"H(MX|BLK1;rwdq)", "TT", "1 1", "1 1"}, {"H(MX|BLK1;rwdq)", "TF", "1 0", "1 0"},
                           {"H(MX|BLK1;rwdq)", "FT", "1 1", "0 1"}, {"H(MX|BLK1;rwdq)", "FF", "0 0", "0 0"}};
  const ArrayPtr x = gradient({64, 96}, DType::bfloat16, 24);
  for (const Row& row : kRows) {
    run.about(string(row.name) + " " + string(row.usages));
    Session session = run.session();
    const Counted h(row.name, usages_of(row.usages));
    const StoragePtr s = h.q->quantize(session, x);
    run.expect_equal(Counted::counts(*h.quantized), row.quantized, "quantize: calls of rows and columns");
    run.expect_equal(Counted::counts(*h.updated), "0 0", "quantize: updates of rows and columns");
    const bool from_rows = row.name.ends_with("rwdq)"), dequantized = from_rows && row.usages[1] == 'T';
    run.expect_equal(static_cast<int64_t>(session.launches.size()),
                     (row.quantized[0] - '0') + (row.quantized[2] - '0') + dequantized, "launches");
    run.expect_equal(text(s->present()), row.usages, "directions of the result");
    // An update of a tensor with both directions: rows that only feed columns are made and dropped.
    const StoragePtr dst = quantizer_named(row.name)->quantize(session, x);
    *h.quantized = *h.updated = {};
    h.q->update_quantized(session, x, *dst, std::nullopt);
    run.expect_equal(Counted::counts(*h.updated), row.updated, "update: calls of rows and columns");
    run.expect_equal(Counted::counts(*h.quantized), row.usages == "FT" && from_rows ? "1 0" : "0 0",
                     "update: transient rows and columns");
    run.expect_equal(text(dst->present()), "TT", "update: directions afterwards");
  }
}

// S-25

void updates_leave_the_other_direction(ScenarioRun& run) {
  const Dims shape{64, 96};
  const ArrayPtr x = gradient(shape, DType::bfloat16, 25),
                 next = drawn(shape, DType::bfloat16, 26, FillKind::wide);
  for (const string_view name : {"H(MX|BLK1)", "H(CS|FP4p)", "H(FP4i|MX)", "H(BLK2|CS)", "H(MX|ID)",
                                 "H(ID|FP4w)", "H(MX|FP4p;rwdq)", "H(FP4p|CS;rwdq)"})
    for (const string_view usages : {"TT", "TF", "FT", "FF"})
      for (const string_view present : {"TT", "TF", "FT"}) {
        run.about(string(name) + " with " + string(present) + ", update of " + string(usages));
        Session session = run.session();
        const auto q = hybrid_named(name);
        q->set_usage(present[0] == 'T', present[1] == 'T');
        const StoragePtr s = q->quantize(session, clone(x)),
                         old = clone(*s);  // of a copy: Identity writes into what it aliases
        q->set_usage(true, true);
        const StoragePtr fresh = q->quantize(session, next);
        q->set_usage(usages[0] == 'T', usages[1] == 'T');
        q->update_quantized(session, next, *s, 0x3F800000);
        run.expect_equal(*s, *old, "under a noop flag of 1");
        q->update_quantized(session, next, *s, std::nullopt);
        run.expect_equal(text(s->present()), present, "directions afterwards");
        const auto side = [&](size_t i, const StoragePtr& got, const StoragePtr& before,
                              const StoragePtr& made) {
          if (got)
            run.expect_equal(
                *got, usages[i] == 'T' ? *made : *before,
                string(i ? "columns" : "rows") + (usages[i] == 'T' ? " refreshed" : " left alone"));
        };
        side(0, hybrid_of(s).rowwise_storage, hybrid_of(old).rowwise_storage,
             hybrid_of(fresh).rowwise_storage);
        side(1, hybrid_of(s).columnwise_storage, hybrid_of(old).columnwise_storage,
             hybrid_of(fresh).columnwise_storage);
      }
}

// S-26

void update_usage_is_all_or_nothing(ScenarioRun& run) {
  const ArrayPtr x = gradient({64, 96}, DType::bfloat16, 27);
  // Square blocks could make columns from rows; a hybrid never does.
  for (const string_view name : {"H(MX|MX)", "H(CS|FP4p)", "H(BLK2|BLK2)", "H(FP4w|FP4w)", "H(ID|MX)"}) {
    run.about(string(name));
    Session session = run.session();
    const StoragePtr rows = quantizer_named(name, kRowUsage)->quantize(session, x),
                     rows_before = clone(*rows);
    run.expect_error(runtime_error, "drop rows, demand columns that are missing",
                     [&] { rows->update_usage(false, true); }, {"columnwise"});
    run.expect_equal(text(rows->present()), "TF", "directions afterwards");
    run.expect_equal(*rows, *rows_before, "rows afterwards");
    const StoragePtr columns = quantizer_named(name, kColumnUsage)->quantize(session, x),
                     columns_before = clone(*columns);
    run.expect_error(runtime_error, "drop columns, demand rows that are missing",
                     [&] { columns->update_usage(true, false); }, {"rowwise"});
    run.expect_equal(text(columns->present()), "FT", "directions afterwards");
    run.expect_equal(*columns, *columns_before, "columns afterwards");
    const StoragePtr both = quantizer_named(name)->quantize(session, x);
    both->update_usage(false, true);
    run.expect_equal(*both, *columns_before, "columns of both, rows dropped");
    both->update_usage(std::nullopt, false);
    run.expect_equal(text(both->present()), "FF", "both dropped");
    run.expect_error(runtime_error, "the size of nothing", [&] { both->size(); });
  }
}

// S-28

void predicates(ScenarioRun& run) {
  // Whether only rows can be gathered: rows of per-tensor FP8, or columns of NVFP4. One line for each format
  // of the rows.
  constexpr std::pair<string_view, string_view> kGather[] = {
      {"CS", "TTTTT"}, {"MX", "FFFTF"}, {"BLK1", "FFFTF"}, {"FP4p", "FFFTF"}, {"ID", "FFFTF"}};
  for (const auto& [row, flags] : kGather)
    for (size_t i = 0; i < std::size(kFive); ++i) {
      run.about(pair_name(row, kFive[i]));
      const auto h = hybrid_named(pair_name(row, kFive[i]));
      run.expect_equal(flag(h->supports_only_rowwise_all_gather()), flags.substr(i, 1),
                       "supports_only_rowwise_all_gather");
      run.expect_equal(text(wgrad_gather_usages(*h)), "FT", "usages for a gather of the wgrad operand");
    }
  for (const auto& [format, usages] : {std::pair<string_view, string_view>{"CS", "TF"},
                                       {"DS", "TF"},
                                       {"MX", "FT"},
                                       {"BLK1", "FT"},
                                       {"FP4i", "FT"},
                                       {"ID", "FT"}}) {
    run.about(string(format));
    run.expect_equal(text(wgrad_gather_usages(*quantizer_named(format))), usages,
                     "usages for a gather of the wgrad operand");
  }

  // Safe and unsafe children (FP4g rounds stochastically): requantization under each set of usages, and
  // whether a wgrad input can be rebuilt.
  struct Row {
    string_view name;
    string_view safe;  // with usages TT, TF, FT, FF
    string_view rebuild;
  };
  constexpr Row kRows[] = {{"H(MX|FP4p)", "TTTT", "T"},      {"H(MX|FP4g)", "FTFT", "T"},
                           {"H(FP4g|MX)", "FFTT", "T"},      {"H(FP4g|FP4g)", "FFFT", "T"},
                           {"H(MX|FP4p;rwdq)", "TTTT", "T"}, {"H(MX|FP4g;rwdq)", "FTFT", "T"},
                           {"H(FP4g|MX;rwdq)", "FFFT", "F"}, {"H(FP4g|FP4g;rwdq)", "FFFT", "F"}};
  constexpr string_view kUsages[] = {"TT", "TF", "FT", "FF"};
  for (const Row& row : kRows) {
    const auto h = hybrid_named(row.name);
    for (size_t i = 0; i < std::size(kUsages); ++i) {
      run.about(string(row.name) + " " + string(kUsages[i]));
      h->set_usage(kUsages[i][0] == 'T', kUsages[i][1] == 'T');
      run.expect_equal(flag(h->is_requantization_safe()), row.safe.substr(i, 1), "is_requantization_safe");
      run.expect_equal(flag(can_rebuild_wgrad_input(*h)), row.rebuild, "the wgrad input can be rebuilt");
    }
  }
  for (const auto& [format, rebuild] : {std::pair<string_view, string_view>{"CS", "T"},
                                        {"MX", "T"},
                                        {"FP4i", "T"},
                                        {"FP4g", "F"},
                                        {"DS", "F"},
                                        {"ID", "T"}}) {
    run.about(string(format));
    run.expect_equal(flag(can_rebuild_wgrad_input(*quantizer_named(format))), rebuild,
                     "the wgrad input can be rebuilt");
  }
}

// S-29

// One format for each GEMM, so that an operand's bytes say which direction of which tensor it is.
constexpr string_view kFprop = "MX", kDgrad = "BLK1", kWgrad = "FP4p";

// The planes of one operand are the buffers of `part`.
void expect_operand(ScenarioRun& run, const GemmRecord& g, string_view side, Storage& part) {
  const string direction = part.present().rowwise ? "rowwise" : "columnwise";
  int64_t planes = 0;
  for (const PlaneData& p : g.planes) {
    if (!p.plane.name.starts_with(side)) continue;
    const string stem = p.plane.name.substr(side.size()),
                 name = stem == "amax" ? "_amax_" + direction : "_" + direction + "_" + stem;
    const ArrayPtr wanted = buffer(part, name);
    if (!run.expect(wanted != nullptr, p.plane.name + " of " + g.name, "the buffer " + name, "none"))
      continue;
    run.expect_equal(from_bytes(wanted->shape, wanted->dtype, p.bytes), wanted,
                     p.plane.name + " of " + g.name + " is " + name);
    ++planes;
  }
  run.expect(planes >= 2, "planes of " + string(side) + " in " + g.name, "data and scales",
             std::to_string(planes));
}

void gemms_select_directions(ScenarioRun& run) {
  constexpr int64_t kTokens = 64, kIn = 128, kOut = 96;
  Session session = run.session();
  LinearSettings settings;
  settings.in_features = kIn;
  settings.out_features = kOut;
  settings.bias = false;
  Linear linear(session, settings);
  fill_parameters(linear, 29);
  const auto recipe = recipe_around("one format for each GEMM", [](const RolePtr& role) -> QuantizerLike {
    const string tensor = role ? role->tensor_type : "";
    if (tensor == "weight") return quantizer_named(pair_name(kFprop, kDgrad));
    if (tensor == "grad_output") return quantizer_named(pair_name(kDgrad, kWgrad));
    return quantizer_named(pair_name(kFprop, kWgrad));
  });
  const ArrayPtr x = gradient({kTokens, kIn}, DType::bfloat16, 30),
                 dy = gradient({kTokens, kOut}, DType::bfloat16, 31);
  const ArrayPtr weight = std::get<ArrayPtr>(linear.parameter("weight").value);
  const StepRecord record = linear.step(session, x, dy, under(recipe));

  struct Selected {
    string_view gemm, a, b;
    ArrayPtr a_of, b_of;
    string_view format;
    Usages a_usage, b_usage;
  };
  const Selected wanted[] = {
      {"fprop", "weight.row", "input.row", weight, x, kFprop, kRowUsage, kRowUsage},
      {"dgrad", "weight.col", "grad_output.row", weight, dy, kDgrad, kColumnUsage, kRowUsage},
      {"wgrad", "input.col", "grad_output.col", x, dy, kWgrad, kColumnUsage, kColumnUsage}};
  run.expect_equal(static_cast<int64_t>(record.gemms.size()), 3, "GEMMs of a step");
  for (const Selected& w : wanted) {
    run.about(string(w.gemm));
    const auto g = std::find_if(record.gemms.begin(), record.gemms.end(),
                                [&](const GemmRecord& r) { return r.name == w.gemm; });
    if (!run.expect(g != record.gemms.end(), "it ran")) continue;
    run.expect_equal(g->a, w.a, "first operand");
    run.expect_equal(g->b, w.b, "second operand");
    expect_operand(run, *g, "a.", *quantizer_named(w.format, w.a_usage)->quantize(session, w.a_of));
    expect_operand(run, *g, "b.", *quantizer_named(w.format, w.b_usage)->quantize(session, w.b_of));
  }

  // The direction that a GEMM reads is missing: it says so. The one that it does not read is not missed.
  const auto tensor = [&](string_view row, string_view col, const ArrayPtr& of) {
    return quantizer_named(pair_name(row, col))->quantize(session, of);
  };
  struct Case {
    string_view gemm;
    GemmOp layout;
    string_view a, b;
    StoragePtr a_tensor, b_tensor;
    Usages a_reads, b_reads;
  };
  const StoragePtr w = tensor(kFprop, kDgrad, weight), in = tensor(kFprop, kWgrad, x),
                   grad = tensor(kDgrad, kWgrad, dy);
  const Case cases[] = {{"fprop", GemmOp::TN, "weight", "input", w, in, kRowUsage, kRowUsage},
                        {"dgrad", GemmOp::NN, "weight", "grad_output", w, grad, kColumnUsage, kRowUsage},
                        {"wgrad", GemmOp::NT, "input", "grad_output", in, grad, kColumnUsage, kColumnUsage}};
  for (const Case& c : cases) {
    run.about(string(c.gemm));
    GemmOptions o;
    o.name = c.gemm;
    o.a = c.a;
    o.b = c.b;
    const auto multiply = [&](const StoragePtr& a, const StoragePtr& b) {
      return std::get<ArrayPtr>(general_gemm(session, a, b, c.layout, o));
    };
    const ArrayPtr whole = multiply(c.a_tensor, c.b_tensor);
    const auto record_of = std::find_if(record.gemms.begin(), record.gemms.end(),
                                        [&](const GemmRecord& r) { return r.name == c.gemm; });
    if (record_of != record.gemms.end())
      run.expect_equal(view(whole, record_of->out->shape), record_of->out, "the module's result");
    const auto less = [](const StoragePtr& s, Usages reads, bool keep) {
      const StoragePtr out = s->make_like();
      out->update_usage(reads.rowwise == keep, reads.columnwise == keep);
      return out;
    };
    run.expect_equal(multiply(less(c.a_tensor, c.a_reads, true), less(c.b_tensor, c.b_reads, true)), whole,
                     "of the directions that it reads alone");
    run.expect_error(runtime_error, "first operand without the direction that it reads",
                     [&] { multiply(less(c.a_tensor, c.a_reads, false), c.b_tensor); },
                     {c.a, c.a_reads.rowwise ? "rowwise" : "columnwise"});
    run.expect_error(runtime_error, "second operand without the direction that it reads",
                     [&] { multiply(c.a_tensor, less(c.b_tensor, c.b_reads, false)); },
                     {c.b, c.b_reads.rowwise ? "rowwise" : "columnwise"});
  }
}

const Scenario kHybridScenarios[] = {
    {"S-20", "What a hybrid quantizer is made of",
     "requests, non-quantizers, one object twice, unknown sources; and pairs that fit",
     "it is constructed and copied",
     "errors come in their order, children are pinned to their direction and keep the rest; classes fail "
     "where they are used",
     construction, ""},
    {"S-21", "A same-format hybrid has vanilla's bytes",
     "every format, bf16 and f32, at rows of 48 to 128 and columns of 80 to 160, both flavours",
     "H(q|q) and q with both usages quantize a tensor", "rows and columns are equal, bit for bit",
     same_format_is_vanilla, ""},
    {"S-22", "Each direction of a hybrid is its own format", "the 25 ordered pairs of five formats",
     "a hybrid quantizes a tensor", "rows are those of the first alone, columns those of the second alone",
     each_direction_is_its_own_format, ""},
    {"S-23", "Columns of dequantized rows",
     "25 pairs with columnwise_source=rowwise_dequantized, bf16 and f32",
     "a hybrid quantizes a tensor, both directions or columns alone",
     "columns are those of the rows dequantized in the tensor's dtype; alone, rows are made once and dropped",
     columns_of_dequantized_rows, ""},
    {"S-24", "A usage that is off is never computed", "hybrids whose children count calls",
     "they quantize and update with usages TT, TF, FT, FF",
     "a child is called where its direction is wanted, rows also where columns come from them",
     a_usage_that_is_off_is_never_computed, ""},
    {"S-25", "An update leaves the other direction as it was", "hybrids with both directions or one",
     "they are updated with usages TT, TF, FT, FF",
     "a wanted direction is what a fresh quantize makes, the other keeps every byte, a missing one stays "
     "missing",
     updates_leave_the_other_direction, ""},
    {"S-26", "update_usage of a hybrid is all or nothing", "hybrids with rows alone or columns alone",
     "the direction that exists is dropped and the missing one demanded",
     "RuntimeError names the missing one and nothing is dropped", update_usage_is_all_or_nothing, ""},
    {"S-27", "What a framework does to a hybrid tensor", "fourteen pairs, both directions or one",
     "saved, detached, pickled, cloned, copied, zeroed, made empty",
     "every buffer comes back exactly, and nothing that is shared is lost", framework_operations_keep_hybrids,
     ""},
    {"S-28", "Predicates of a hybrid follow its children",
     "pairs of five formats, and of safe and unsafe children",
     "they are asked what may be gathered, quantized again, rebuilt", "the tables hold", predicates, ""},
    {"S-29", "Each GEMM reads its own directions", "a Linear with one format for each GEMM",
     "a step runs, and GEMMs run without one direction",
     "operands are (weight.row, input.row), (weight.col, grad_output.row), (input.col, grad_output.col), "
     "byte for byte; a missing one raises",
     gemms_select_directions, ""},
};

}  // namespace

std::span<const Scenario> hybrid_scenarios() { return kHybridScenarios; }

}  // namespace assay::training
