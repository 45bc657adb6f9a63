// S-27: hybrids through what a framework does to any tensor.
#include "training/scenarios/hybrid_storage.h"

#include <algorithm>

#include "training/base/data.h"
#include "training/formats/ops.h"
#include "training/scenarios/common.h"
#include "training/scenarios/formats.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;
using enum ErrorClass;

constexpr string_view kFormats[] = {"CS", "MX", "BLK1", "FP4p"};
const Dims kShape{64, 96};

std::vector<string> pairs() {
  std::vector<string> out;
  for (const string_view row : kFormats)
    for (const string_view col : kFormats)
      if (row != col || row == "MX" || row == "BLK1")
        out.push_back("H(" + string(row) + "|" + string(col) + ")");
  return out;
}

bool shares_memory(Storage& a, Storage& b) {
  for (const string& name : buffer_names(a))
    if (buffer(b, name) && share_memory(*buffer(a, name), *buffer(b, name))) return true;
  return false;
}
bool shares_every_buffer(Storage& a, Storage& b) {
  const std::vector<string> names = buffer_names(a);
  return names == buffer_names(b) && std::all_of(names.begin(), names.end(), [&](const string& n) {
           return share_memory(*buffer(a, n), *buffer(b, n));
         });
}
void overwrite(Storage& s) {
  for (const string& name : buffer_names(s)) std::ranges::fill(buffer(s, name)->bytes(), std::byte{0x55});
}

void saved_and_detached(ScenarioRun& run, Storage& s, Storage& before) {
  const std::vector<string> names = buffer_names(before);
  std::vector<ArrayPtr> held;
  for (const Field& f : s.fields()) held.push_back(*f.slot);
  Saved saved = s.prepare_for_saving();
  run.expect(saved == held, "saved buffers", "rows' fields, then columns', absent ones as null", "others");
  run.expect(buffer_names(s).empty(), "buffers after saving", "none", "some");
  saved.insert(saved.begin(), nullptr);                   // of another tensor
  saved.push_back(clone(drawn({1}, DType::float32, 1)));  // of the next one
  run.expect_equal(static_cast<int64_t>(s.restore_from_saved(saved, 1)),
                   static_cast<int64_t>(saved.size()) - 1, "index of the first buffer that was not consumed");
  run.expect_equal(s, before, "restored");

  const StoragePtr detached = detach(s);
  run.expect(shares_every_buffer(*detached, s), "detached", "the same memory", "copies");
  run.expect_equal(*detached, before, "detached");
  detached->prepare_for_saving();
  run.expect_equal(s, before, "the original after its detached one was saved");
  detach(s)->update_usage(false, false);
  run.expect_equal(s, before, "the original after its detached one dropped its directions");
}

void copies(ScenarioRun& run, Storage& s, Storage& before) {
  const StoragePtr cloned = clone(s);
  run.expect_equal(*cloned, before, "cloned");
  run.expect(!shares_memory(*cloned, s), "memory of a clone", "its own", "shared");
  overwrite(*cloned);
  run.expect_equal(s, before, "the original after its clone was overwritten");

  const StoragePtr victim = clone(s);
  const Pickled p = pickled(*victim);
  overwrite(*victim);
  const StoragePtr loaded = unpickled(p), again = unpickled(p);
  run.expect_equal(*loaded, before, "unpickled");
  run.expect(!shares_memory(*loaded, *again), "memory of two that were loaded", "their own", "shared");
  run.expect(loaded->quantizer && loaded->quantizer->describe() == s.quantizer->describe(),
             "the loaded tensor's quantizer", "the same settings", "others");
  run.expect(loaded->size() == s.size() && loaded->dtype == s.dtype, "the loaded tensor's shape and dtype",
             "the same", "others");
}

void written_over(ScenarioRun& run, Session& session, const string& name, Usages usages, Storage& s,
                  Storage& before) {
  const ArrayPtr next = drawn(kShape, DType::bfloat16, 28, FillKind::wide);
  const StoragePtr other = quantizer_named(name, usages)->quantize(session, next), dst = clone(s);
  copy_into(session, *other, *dst);
  run.expect_equal(*dst, *other, "copy_ from a hybrid");
  run.expect(!shares_memory(*dst, *other), "memory after copy_", "its own", "shared");
  const StoragePtr refreshed = clone(s);
  copy_into(session, next, *refreshed);
  run.expect_equal(*refreshed, *other, "copy_ from a plain tensor");
  for (const Usages unlike : {kBothUsages, kRowUsage, kColumnUsage}) {
    if (unlike == usages) continue;
    const StoragePtr from = quantizer_named(name, unlike)->quantize(session, next);
    run.expect_error(not_implemented_error, "copy_ from " + text(unlike),
                     [&] { copy_into(session, *from, s); });
    run.expect_equal(s, before, "after copy_ from " + text(unlike));
  }
}

void made_alike(ScenarioRun& run, Session& session, Storage& s, Storage& before) {
  const uint64_t offset = session.rng.offset;
  const json::Value settings = s.quantizer->describe();
  const StoragePtr zeroed = new_zeros(session, s, kShape);
  run.expect_equal(text(zeroed->present()), text(s.present()), "new_zeros: directions");
  run.expect_equal(buffer_names(*zeroed), buffer_names(s), "new_zeros: buffers");
  for (const string& b : buffer_names(*zeroed)) {
    const ArrayPtr got = buffer(*zeroed, b);
    run.expect_equal(got, zeros(got->shape, got->dtype), "new_zeros: " + b);
    run.expect_equal(name_of(got->dtype), name_of(buffer(s, b)->dtype), "new_zeros: dtype of " + b);
    if (b.ends_with("data"))
      run.expect(got->shape == buffer(s, b)->shape, "new_zeros: shape of " + b, "the original's", "another");
  }
  run.expect_equal(s, before, "the original after new_zeros");
  run.expect(s.quantizer->describe() == settings, "its quantizer after new_zeros", "as it was", "changed");
  run.expect_equal(static_cast<int64_t>(session.rng.offset), static_cast<int64_t>(offset),
                   "the generator after new_zeros");

  const StoragePtr blank = s.quantizer->make_empty(session, s.size(), s.dtype);
  run.expect_equal(blank->class_name(), s.class_name(), "empty_like: class");
  run.expect_equal(text(blank->present()), text(s.present()), "empty_like: directions");
  run.expect_equal(buffer_names(*blank), buffer_names(s), "empty_like: buffers");
  for (const string& b : buffer_names(*blank)) {
    const ArrayPtr got = buffer(*blank, b), like = buffer(s, b);
    run.expect(got->shape == like->shape && got->dtype == like->dtype, "empty_like: shape and dtype of " + b,
               "the original's", "others");
  }
  run.expect(!shares_memory(*blank, s), "empty_like: memory", "its own", "shared");
}

}  // namespace

void framework_operations_keep_hybrids(ScenarioRun& run) {
  const ArrayPtr x = gradient(kShape, DType::bfloat16, 27);
  for (const string& name : pairs())
    for (const Usages usages : {kBothUsages, kRowUsage, kColumnUsage}) {
      run.about(name + " " + text(usages));
      Session session = run.session();
      const StoragePtr s = quantizer_named(name, usages)->quantize(session, x), before = clone(*s);
      saved_and_detached(run, *s, *before);
      copies(run, *s, *before);
      written_over(run, session, name, usages, *s, *before);
      made_alike(run, session, *s, *before);
    }

  run.about("light children");
  Session session = run.session();
  const auto light = hybrid_named("H(MX|BLK1)");
  light->columnwise_quantizer->internal = true;
  const StoragePtr s = light->quantize(session, x);
  run.expect_error(not_implemented_error, "detach", [&] { detach(*s); });
  run.expect_error(value_error, "contiguous", [&] { contiguous(s); });

  run.about("NVFP4 alone");
  run.expect_error(assertion_error, "a clone of columns",
                   [&] { clone(*quantizer_named("FP4p", kColumnUsage)->quantize(session, x)); },
                   {"row-wise"});

  run.about("neither direction");
  const StoragePtr nothing = quantizer_named("H(MX|BLK1)", kNoUsage)->quantize(session, x);
  run.expect_equal(text(nothing->present()), "FF", "directions");
  run.expect_error(runtime_error, "new_zeros", [&] { new_zeros(session, *nothing, kShape); });
}

}  // namespace assay::training
