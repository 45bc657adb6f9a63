#include "training/formats/storage.h"

#include <string>
#include <utility>

#include "training/formats/blockwise.h"
#include "training/formats/float8.h"
#include "training/formats/identity.h"
#include "training/formats/parts.h"

namespace assay::training {

namespace {

using std::string;

// The attribute of `storage` that a gather names.
ArrayPtr& buffer_named(Storage& storage, const string& name) {
  for (const Field& f : storage.fields())
    if (f.name == name) return *f.slot;
  throw SemanticError(
      ErrorClass::attribute_error,
      "fsdp: expected a buffer of " + string(storage.class_name()) + ", found the name " + name);
}

}  // namespace

string Storage::device() const {
  for (const Field& f :
       const_cast<Storage*>(this)->fields())  // fields() hands out slots; nothing is written here
    if (*f.slot) return "cpu";
  throw SemanticError(ErrorClass::runtime_error,
                      "device: expected a " + string(class_name()) + " with buffers, found none left");
}

Saved Storage::prepare_for_saving() {
  Saved out;
  for (const Field& f : fields()) out.push_back(std::exchange(*f.slot, nullptr));
  return out;
}

size_t Storage::restore_from_saved(const Saved& saved, size_t from) {
  for (const Field& f : fields()) *f.slot = saved.at(from++);
  return from;
}

void Storage::clear() {
  for (const Field& f : fields())
    if (*f.slot) **f.slot = *empty({0}, (*f.slot)->dtype);
}

void Storage::copy_from_storage(const Storage& from) {
  if (from.names().light != names().light)
    throw SemanticError(ErrorClass::type_error, "copy_from_storage: expected " + with_article(names().light) +
                                                    ", found a " + string(from.class_name()));
  expect_same_settings(from);
  const std::vector<Field> theirs = const_cast<Storage&>(from).fields(),
                           own = fields();  // theirs are only read
  for (size_t i = 0; i < own.size(); ++i) copy_optional(*theirs[i].slot, *own[i].slot);
}

void Storage::expect_same_settings(const Storage&) const {}

void Storage::nothing_left(ErrorClass c, std::string_view call, std::string_view what) const {
  throw SemanticError(c, string(call) + ": expected " + with_article(names().tensor) + " with " +
                             string(what) + ", found none left");
}

// What a class gathers unless it says otherwise: its fields, by name, as they are.
Extracted Storage::fsdp_extract_buffers() {
  const std::vector<string> names = fsdp_buffer_fields();
  Extracted out{{}, json::object({{"field_names", names_as_json(names)}})};
  for (const string& name : names) out.buffers.push_back(buffer_named(*this, name));
  return out;
}

void Storage::fsdp_assign_gathered(const std::vector<ArrayPtr>& buffers, const json::Value& meta) {
  fsdp_buffer_fields();  // NotImplementedError of a class without the protocol
  const json::Value* names = meta.find("field_names");
  const size_t n = names && names->array() ? names->array()->size() : 0;
  if (n != buffers.size())
    throw SemanticError(ErrorClass::runtime_error, "fsdp: expected " + std::to_string(n) +
                                                       " gathered buffers for " + string(class_name()) +
                                                       ", found " + std::to_string(buffers.size()));
  for (size_t i = 0; i < n; ++i)
    if (const string* name = (*names->array())[i].string()) buffer_named(*this, *name) = buffers[i];
}

bool workspace_valid(const Storage& cached, const Quantizer& wanted, bool tn_only) {
  if (const auto* fp8 = dynamic_cast<const Float8Storage*>(&cached))
    return !(tn_only && wanted.columnwise_usage && !fp8->transpose);
  if (dynamic_cast<const Float8BlockwiseStorage*>(&cached) || dynamic_cast<const IdentityStorage*>(&cached))
    return true;  // the original looks at neither
  const Usages has = cached.present();
  return (has.rowwise || !wanted.rowwise_usage) && (has.columnwise || !wanted.columnwise_usage);
}

}  // namespace assay::training
